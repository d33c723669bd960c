// node-postgres: what an application does with pg, pg-cursor, pg-query-stream and pg-copy-streams.
const { Client, Query } = require('pg')
const Cursor = require('pg-cursor')
const QueryStream = require('pg-query-stream')
const { from: copyFrom, to: copyTo } = require('pg-copy-streams')
const { pipeline } = require('node:stream/promises')
const { Readable } = require('node:stream')

const say = (name, ...values) => console.log(name + ': ' + values.map((v) => (typeof v === 'string' ? v : JSON.stringify(v))).join(' | '))

async function failing(promise) {
  try {
    await promise
  } catch (e) {
    return e
  }
  throw new Error('no error')
}

async function types(c) {
  const { rows, fields } = await c.query({
    name: 'types',
    text: `SELECT $1::int2 AS small, $2::int8 AS big, $3::float8 AS ratio, $4::numeric AS price, $5::text AS name, $6::bool AS ok,
           $7::date::text AS day, $8::timestamptz AS at, $9::bytea AS data, $10::uuid AS id, $11::jsonb AS doc, $12::int[] AS list,
           $13::text AS nothing`,
    values: [7, '9223372036854775807', 1.5, '12.340', 'zö\u{1F40D} \'"\\', true, '2024-02-29', new Date('2024-01-02T03:04:05.678Z'),
      Buffer.from([0, 255, 92]), '6f9619ff-8b86-d011-b42d-00c04fc964ff', { a: [1, null] }, [1, 2, 3], null],
  })
  const r = rows[0]
  say('types', r.small, r.big, r.ratio, r.price, r.name, r.ok, r.day, r.at, r.data.toString('hex'), r.id, r.doc, r.list, r.nothing)
  say('oids', fields.map((f) => f.dataTypeID).join(' '))
  for (const n of [1, 2, 3]) say('prepared again', (await c.query({ name: 'again', text: 'SELECT $1::int * 2 AS n', values: [n] })).rows[0].n)
}

async function transactions(c) {
  await c.query('CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)')
  await c.query('BEGIN')
  await c.query('INSERT INTO t VALUES ($1, $2)', [1, 'one'])
  await c.query('ROLLBACK')
  say('rolled back', (await c.query('SELECT count(*)::int AS n FROM t')).rows[0].n)
  await c.query('BEGIN; SAVEPOINT s')
  say('error', (await failing(c.query('SELECT $1::int / 0', [1]))).code)
  say('failed block', (await failing(c.query('SELECT 1'))).code)
  await c.query('ROLLBACK TO s; INSERT INTO t VALUES (2, \'two\'); COMMIT')
  const e = await failing(c.query('INSERT INTO t VALUES ($1)', [2]))
  say('violation', e.code, e.constraint, e.detail, e.table, e.severity)
  const syntax = await failing(c.query('SELECT * FORM t'))
  say('syntax', syntax.code, syntax.position, syntax.message)
  say('several', (await c.query('SELECT 1 AS a; SELECT 2 AS b; SELECT 3 AS c WHERE false')).map((r) => r.rows))
  const queued = await Promise.all([...Array(50).keys()].map((n) => c.query('INSERT INTO t VALUES ($1, $2) RETURNING id', [n + 10, `n${n}`])))
  say('queued', queued.reduce((sum, r) => sum + r.rows[0].id, 0), queued[0].command, queued[0].rowCount)
}

async function streams(c) {
  const cursor = c.query(new Cursor('SELECT n FROM generate_series(1, $1::int) n', [1000]))
  const read = [(await cursor.read(10)).length, (await cursor.read(600)).length, (await cursor.read(600)).length]
  await cursor.close()
  say('cursor', read)
  let sum = 0
  for await (const row of c.query(new QueryStream('SELECT n FROM generate_series(1, 10000) n', [], { batchSize: 100 }))) sum += row.n
  say('stream', sum)
  const early = c.query(new Cursor('SELECT n FROM generate_series(1, 100000) n'))
  await early.read(1)
  await early.close()
  say('after an early close', (await c.query('SELECT 1 AS n')).rows)
  await pipeline(Readable.from(['1000\tcopied\n', '1001\t\\N\n']), c.query(copyFrom('COPY t FROM STDIN')))
  const out = []
  for await (const chunk of c.query(copyTo('COPY (SELECT * FROM t WHERE id >= 1000 ORDER BY id) TO STDOUT'))) out.push(chunk)
  say('copy', Buffer.concat(out).toString())
  say('bad copy', (await failing(pipeline(Readable.from(['x\ty\n']), c.query(copyFrom('COPY t FROM STDIN'))))).code)
}

async function events(c, other) {
  const heard = new Promise((resolve) => c.once('notification', resolve))
  await c.query('LISTEN news')
  await other.query("SELECT pg_notify('news', 'hello')")
  const { channel, payload } = await heard
  say('notification', channel, payload)
  const notice = new Promise((resolve) => c.once('notice', resolve))
  await c.query("DO $$ BEGIN RAISE NOTICE 'hear this' USING HINT = 'listen'; END $$")
  const { code, message, hint } = await notice
  say('notice', code, message, hint)
  const sleeping = new Query('SELECT pg_sleep(60)')
  const ended = new Promise((resolve) => sleeping.once('error', resolve))
  c.query(sleeping)
  await running(other, 'node one')
  new Client().cancel(c, sleeping)
  say('cancelled', (await ended).code)
}

async function running(other, application) {
  const text = "SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND query LIKE 'SELECT pg_sleep%' AND wait_event = 'PgSleep'"
  while ((await other.query(text, [application])).rowCount === 0);
}

async function metadata(c) {
  const { rows } = await c.query(`SELECT column_name, data_type, is_nullable FROM information_schema.columns
    WHERE table_name = $1 ORDER BY ordinal_position`, ['t'])
  say('columns', rows.map((r) => Object.values(r).join(' ')).join(', '))
}

async function ours(c) {
  console.log('== pgstream')
  const mine = (rows) => rows.filter((r) => r.Name === 'of_languages').map((r) => r.Name + ' ' + r.Type)
  say('stores', mine((await c.query('LIST STORES')).rows))
  for (const n of [1, 2]) say('prepared', n, mine((await c.query({ name: 'ours', text: 'LIST STORES' })).rows))
  const e = await failing(c.query('DROP STORE nope'))
  say('missing', e.code, e.message)
}

async function main() {
  const c = new Client({ application_name: 'node one' })
  const other = new Client({ application_name: 'node two' })
  await Promise.all([c.connect(), other.connect()])
  say('session', Object.values((await c.query('SELECT current_user, current_database()')).rows[0]))
  for (const part of [types, transactions, streams, metadata]) await part(c)
  await events(c, other)
  const wrong = new Client({ password: 'wrong' })
  say('wrong password', (await failing(wrong.connect())).code)
  if (process.env.TARGET === 'pgstream') await ours(c)
  await Promise.all([c.end(), other.end()])
}

main().catch((e) => { console.error(e); process.exit(1) })
