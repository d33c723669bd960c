# Ruby's pg: synchronous and asynchronous calls, binary values, pipelines, single-row mode, COPY, notifications, cancel.
require 'pg'

def say(name, *values) = puts("#{name}: #{values.map { |v| v.is_a?(String) ? v : v.inspect }.join(' | ')}")

def failing
  yield
  raise 'no error'
rescue PG::Error => e
  e
end

def state(error) = error.result.error_field(PG::Result::PG_DIAG_SQLSTATE)

c = PG.connect
say 'session', *c.exec('SELECT current_user, current_database()').values[0]

TYPES = 'SELECT $1::int2, $2::int8, $3::float8, $4::numeric, $5::text, $6::bool, $7::date, $8::timestamptz, $9::bytea, $10::uuid, $11::jsonb,' \
        ' $12::int[], $13::text'
VALUES = [7, '9223372036854775807', 1.5, '12.340', "zö\u{1F40D} '\"\\", 't', '2024-02-29', '2024-01-02 03:04:05.678+00',
          { value: "\0\xFF\\".b, format: 1 }, '6f9619ff-8b86-d011-b42d-00c04fc964ff', '{"a": [1, null]}', '{1,2,3}', nil].freeze
c.prepare('types', TYPES)
3.times { say 'types', *c.exec_prepared('types', VALUES).values[0] }
say 'binary', *c.exec_params(TYPES, VALUES, 1).values[0].map { |v| v&.unpack1('H*') }
described = c.describe_prepared('types')
say 'described', (0...described.nparams).map { |n| described.paramtype(n) }, (0...described.nfields).map { |n| described.ftype(n) }
c.type_map_for_results = PG::BasicTypeMapForResults.new(c)
say 'mapped', *c.exec("SELECT 1::int8, 1.5::float8, true, '{1,NULL}'::int[], '2024-02-29'::date::text, NULL").values[0]
c.type_map_for_results = PG::TypeMapAllStrings.new

c.exec('CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)')
c.transaction do
  c.exec_params('INSERT INTO t VALUES ($1, $2)', [1, 'one'])
  c.exec('SAVEPOINT s')
  say 'error', state(failing { c.exec_params('SELECT 1 / $1::int', [0]) }), c.transaction_status
  say 'failed block', state(failing { c.exec('SELECT 1') })
  c.exec('ROLLBACK TO s')
end
violation = failing { c.exec('INSERT INTO t VALUES (1)') }
say 'violation', violation.class, *%w[CONSTRAINT_NAME MESSAGE_DETAIL TABLE_NAME SEVERITY].map { |f|
  violation.result.error_field(PG::Result.const_get("PG_DIAG_#{f}"))
}
say 'syntax', failing { c.exec('SELECT * FORM t') }.message.lines
c.send_query('SELECT 1; SELECT 2, 3; SELECT nothing')
while (r = c.get_result)
  say 'result', r.res_status(r.result_status), r.nfields
end

c.enter_pipeline_mode
50.times { |n| c.send_query_params('INSERT INTO t VALUES ($1, $2) RETURNING id', [n + 10, 'many']) }
c.pipeline_sync
c.send_query_params('SELECT 1/0', [])
c.send_query_params('SELECT 1', [])
c.pipeline_sync
sum = 0
seen = []
until seen.count('PGRES_PIPELINE_SYNC') == 2
  r = c.get_result or next
  r.result_status == PG::PGRES_TUPLES_OK ? sum += r.getvalue(0, 0).to_i : seen << r.res_status(r.result_status)
end
c.exit_pipeline_mode
say 'pipeline', sum, seen

c.send_query('SELECT n FROM generate_series(1, 10000) n')
c.set_single_row_mode
say 'single rows', c.get_result.stream_each_row.sum { |row| row[0].to_i }
c.get_result
c.transaction do
  c.exec('DECLARE cur SCROLL CURSOR FOR SELECT n FROM generate_series(1, 1000) n')
  say 'cursor', [10, 600, 600].map { |n| c.exec("FETCH #{n} cur").ntuples }, c.exec('FETCH ABSOLUTE 5 cur').values
end
c.copy_data('COPY t FROM STDIN') { c.put_copy_data("1000\tcopied\n1001\t\\N\n") }
lines = []
c.copy_data('COPY (SELECT * FROM t WHERE id >= 1000 ORDER BY id) TO STDOUT') { while (line = c.get_copy_data) do lines << line end }
say 'copy', lines
say 'bad copy', state(failing { c.copy_data('COPY t FROM STDIN') { c.put_copy_data("x\ty\n") } })

other = PG.connect
c.exec('LISTEN news')
other.exec("NOTIFY news, 'hello'")
c.wait_for_notify(10) { |channel, _, payload| say 'notification', channel, payload }
notices = []
c.set_notice_receiver { |r| notices << r.error_field(PG::Result::PG_DIAG_MESSAGE_PRIMARY) }
c.exec("DO $$ BEGIN RAISE NOTICE 'hear this'; END $$")
say 'notice', notices
c.send_query('SELECT pg_sleep(60)')
asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
nil until other.exec(asleep).getvalue(0, 0) == '1'
say 'cancelled', c.cancel.inspect, state(failing { c.get_last_result }), c.exec('SELECT 1').values
say 'parameters', c.parameter_status('client_encoding'), c.parameter_status('standard_conforming_strings')
say 'wrong password', failing { PG.connect(password: 'wrong') }.message[/FATAL.*/]

if ENV['TARGET'] == 'pgstream'
  puts '== pgstream'
  mine = ->(r) { r.select { |row| row['Name'] == 'of_languages' }.map { |row| row.values_at('Name', 'Type') } }
  say 'stores', mine.(c.exec('LIST STORES')), mine.(c.exec_params('LIST STORES', []))
  c.prepare('ours', 'LIST STORES')
  say 'prepared', 2.times.map { mine.(c.exec_prepared('ours')) }, c.describe_prepared('ours').fname(0)
  say 'missing', state(failing { c.exec('DROP STORE nope') })
end
