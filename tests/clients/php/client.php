<?php
// PDO (emulated, server-side and direct statements), and the older pgsql functions for what PDO has not.

function say(string $name, ...$values): void
{
    $text = fn ($v) => match (true) { $v === null => 'NULL', is_bool($v) => $v ? 'true' : 'false', is_array($v) => json_encode($v), default => $v };
    echo $name, ': ', implode(' | ', array_map($text, $values)), "\n";
}

function failing(callable $do): array
{
    try {
        $do();
    } catch (PDOException $e) {
        return $e->errorInfo;
    }
    throw new Exception('no error');
}

function pdo(?string $password = null): PDO
{
    $dsn = sprintf('pgsql:host=%s;port=%s;dbname=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE'));
    return new PDO($dsn, getenv('PGUSER'), $password ?? getenv('PGPASSWORD'), [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}

$db = pdo();
say('session', ...$db->query('SELECT current_user, current_database()')->fetch(PDO::FETCH_NUM));

$text = 'SELECT :small::int2, :big::int8, :ratio::float8, :price::numeric, :name::text, :ok::bool, :day::date, :at::timestamptz,'
    . ' :data::bytea, :id::uuid, :doc::jsonb, :list::int[], :nothing::text';
foreach (['prepared' => [], 'emulated' => [PDO::ATTR_EMULATE_PREPARES => true], 'direct' => [PDO::PGSQL_ATTR_DISABLE_PREPARES => true]] as $how => $options) {
    $statement = $db->prepare($text, $options);
    for ($turn = 0; $turn < 2; $turn++) {
        foreach (['small' => 7, 'big' => '9223372036854775807', 'ratio' => '1.5', 'price' => '12.340', 'name' => "zö\u{1F40D} '\"", 'day' => '2024-02-29',
            'at' => '2024-01-02 03:04:05.678+00', 'id' => '6f9619ff-8b86-d011-b42d-00c04fc964ff', 'doc' => '{"a": [1, null]}', 'list' => '{1,2,3}'] as $key => $value) {
            $statement->bindValue($key, $value, is_int($value) ? PDO::PARAM_INT : PDO::PARAM_STR);
        }
        $statement->bindValue('ok', true, PDO::PARAM_BOOL);
        $statement->bindValue('data', "\0\xff\\", PDO::PARAM_LOB);
        $statement->bindValue('nothing', null, PDO::PARAM_NULL);
        $statement->execute();
        $row = $statement->fetch(PDO::FETCH_NUM);
        $row[8] = bin2hex(stream_get_contents($row[8]));
        say($how, ...$row);
    }
    $kinds = array_map(fn ($n) => $statement->getColumnMeta($n)['native_type'], range(0, $statement->columnCount() - 1));
    say('native types', ...$kinds);
}

$db->exec('CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)');
$db->beginTransaction();
$db->exec("INSERT INTO t VALUES (1, 'one')");
$db->exec('SAVEPOINT s');
say('error', failing(fn () => $db->query('SELECT 1 / 0'))[0]);
say('failed block', failing(fn () => $db->query('SELECT 1'))[0], $db->inTransaction());
$db->exec('ROLLBACK TO s');
$db->commit();
say('violation', ...failing(fn () => $db->prepare('INSERT INTO t VALUES (?)')->execute([1])));
say('syntax', ...failing(fn () => $db->query('SELECT * FORM t')));
say('several', $db->exec('INSERT INTO t VALUES (2); INSERT INTO t VALUES (3), (4)'));
$cursor = $db->prepare('SELECT n FROM generate_series(1, 1000) n', [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
$cursor->execute();
say('scroll cursor', $cursor->fetchColumn(), $cursor->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_LAST)[0], $cursor->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_ABS, 500)[0]);
$cursor = null;
$db->pgsqlCopyFromArray('t', ["1000\tcopied", "1001\t\\N"]);
say('copy', $db->pgsqlCopyToArray('t'));
say('bad copy', failing(fn () => $db->pgsqlCopyFromArray('t', ["x\ty"]))[0]);
$db->beginTransaction();
$object = $db->pgsqlLOBCreate();
$stream = $db->pgsqlLOBOpen($object, 'w+b');
fwrite($stream, 'large object');
rewind($stream);
say('large object', stream_get_contents($stream));
fclose($stream);
say('unlinked', $db->pgsqlLOBUnlink($object));
$db->commit();
$db->exec('LISTEN news');
pdo()->query("SELECT pg_notify('news', 'hello')");
$heard = $db->pgsqlGetNotify(PDO::FETCH_ASSOC, 10000);
say('notification', $heard['message'], $heard['payload']);
say('wrong password', failing(fn () => pdo('wrong'))[1]);

$old = pg_connect('');
$other = pg_connect('', PGSQL_CONNECT_FORCE_NEW);
say('columns', array_map(fn ($c) => $c['type'] . ' ' . $c['num'], pg_meta_data($old, 'pg_catalog.pg_description')));
pg_prepare($old, 'named', 'SELECT $1::int + 1 AS n');
say('named', ...array_map(fn ($n) => pg_fetch_result(pg_execute($old, 'named', [$n]), 0, 'n'), [1, 2, 3]));
pg_send_query($old, 'SELECT 1 AS a; SELECT 2 AS b, 3 AS c; SELECT nothing');
while ($result = pg_get_result($old)) {
    say('result', pg_num_fields($result), pg_num_rows($result), pg_result_error_field($result, PGSQL_DIAG_SQLSTATE) ?: 'ok');
}
pg_send_query($old, 'SELECT pg_sleep(60)');
while (pg_fetch_result(pg_query($other, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"), 0, 0) == 0);
say('cancelled', pg_cancel_query($old), pg_fetch_result(pg_query($old, 'SELECT 1'), 0, 0));

if (getenv('TARGET') === 'pgstream') {
    echo "== pgstream\n";
    foreach ([[], [PDO::ATTR_EMULATE_PREPARES => true], [PDO::PGSQL_ATTR_DISABLE_PREPARES => true]] as $options) {
        $list = $db->prepare('LIST STORES', $options);
        $list->execute();
        foreach ($list->fetchAll(PDO::FETCH_ASSOC) as $row) {
            if ($row['Name'] === 'of_languages') {
                say('stores', $row['Name'], $row['Type']);
            }
        }
        say('missing', failing(fn () => $db->prepare('DROP STORE nope', $options)->execute())[0]);
    }
}
