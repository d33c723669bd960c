# DBD::Pg: typed and array binds, COPY, asynchronous queries, notifications, catalogue methods.
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));
use DBI;
use DBD::Pg qw(:pg_types :async);

my %quiet = (RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoCommit => 1, pg_enable_utf8 => 1);
my $db = DBI->connect('dbi:Pg:', undef, undef, \%quiet);

sub say_ { my $name = shift; print "$name: ", join(' | ', map { $_ // 'NULL' } @_), "\n" }

sub failing {
    my $do = shift;
    my $done = eval { $do->(); 1 };
    die 'no error' if $done;
    return $DBI::state // $db->state;
}

say_ session => $db->selectrow_array('SELECT current_user, current_database()');

my $types = $db->prepare('SELECT ?::int2, ?::int8, ?::float8, ?::numeric, ?::text, ?::bool, ?::date, ?::timestamptz, ?::bytea,'
        . ' ?::uuid, ?::jsonb, ?::int[], ?::text');
my @values = (7, '9223372036854775807', 1.5, '12.340', "zö\x{1F40D} '\"\\", 't', '2024-02-29', '2024-01-02 03:04:05.678+00', "\0\xff\\",
    '6f9619ff-8b86-d011-b42d-00c04fc964ff', '{"a": [1, null]}', [1, 2, 3], undef);
$types->bind_param(9, $values[8], { pg_type => PG_BYTEA });
for (1 .. 3) {
    $types->bind_param($_ + 1, $values[$_]) for grep { $_ != 8 } 0 .. $#values;
    $types->execute;
    my @row = $types->fetchrow_array;
    $row[8] = unpack 'H*', $row[8];
    $row[11] = "@{$row[11]}";
    say_ types => @row;
}
say_ 'type names' => @{ $types->{pg_type} };

$db->do('CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)');
$db->begin_work;
$db->do('INSERT INTO t VALUES (?, ?)', undef, 1, 'one');
$db->pg_savepoint('s');
say_ error => failing(sub { $db->do('SELECT 1 / ?::int', undef, 0) });
say_ 'failed block' => failing(sub { $db->do('SELECT 1') }), $db->ping;
$db->pg_rollback_to('s');
$db->commit;
say_ violation => failing(sub { $db->do('INSERT INTO t VALUES (1)') });
say_ fields => map { $db->pg_error_field($_) } qw(constraint detail table severity);
say_ syntax => failing(sub { $db->do('SELECT * FORM t') }), $db->pg_error_field('statement_position');
my $insert = $db->prepare('INSERT INTO t VALUES (?, ?)');
say_ 'array binds' => scalar $insert->execute_array({ ArrayTupleStatus => \my @status }, [10 .. 59], 'many');
say_ several => $db->do('SELECT 1; SELECT 2');

$db->begin_work;
$db->do('DECLARE c CURSOR FOR SELECT n FROM generate_series(1, 1000) n');
say_ cursor => map { scalar @{ $db->selectall_arrayref("FETCH $_ c") } } 10, 600, 600;
$db->commit;

$db->do('COPY t FROM STDIN');
$db->pg_putcopydata("1000\tcopied\n");
$db->pg_putcopydata("1001\t\\N\n");
$db->pg_putcopyend;
$db->do('COPY (SELECT * FROM t WHERE id >= 1000 ORDER BY id) TO STDOUT');
while ($db->pg_getcopydata(\my $line) >= 0) { print "copy: $line" }
$db->do('COPY t FROM STDIN');
$db->pg_putcopydata("x\ty\n");
say_ 'bad copy' => failing(sub { $db->pg_putcopyend });

my $other = DBI->connect('dbi:Pg:', undef, undef, \%quiet);
$db->do('LISTEN news');
$other->do("SELECT pg_notify('news', 'hello')");
my $heard;
until ($heard = $db->pg_notifies) { $db->do('SELECT 1') }
say_ notification => $heard->[0], $heard->[2];
{
    my @notices;
    local $SIG{__WARN__} = sub { push @notices, @_ };
    $db->{PrintWarn} = 1;
    $db->do(q{DO $$ BEGIN RAISE NOTICE 'hear this'; END $$});
    $db->{PrintWarn} = 0;
    say_ notice => @notices ? $notices[0] =~ /(NOTICE: +hear this)/ : 'none';
}

$db->do('SELECT pg_sleep(60)', { pg_async => PG_ASYNC });
my $asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND wait_event = 'PgSleep'";
1 until ($other->selectrow_array($asleep))[0];
say_ cancelled => $db->pg_cancel ? $db->state : 'not';
say_ 'after it' => $db->selectrow_array('SELECT 1');

my $columns = $db->column_info(undef, undef, 't', '%');
while (my $c = $columns->fetchrow_hashref) { say_ column => @$c{qw(COLUMN_NAME TYPE_NAME NULLABLE ORDINAL_POSITION)} }
say_ 'primary key' => $db->primary_key(undef, undef, 't');
say_ 'wrong password' => eval { DBI->connect('dbi:Pg:', undef, 'wrong', \%quiet); 1 } ? 'in' : $DBI::state;

if ($ENV{TARGET} eq 'pgstream') {
    print "== pgstream\n";
    for my $mode (0, 1) {
        my $list = $db->prepare('LIST STORES', { pg_server_prepare => $mode });
        $list->execute;
        while (my $row = $list->fetchrow_hashref) { say_ stores => @$row{qw(Name Type)} if $row->{Name} eq 'of_languages' }
    }
    say_ missing => failing(sub { $db->do('DROP STORE nope') });
    my $columns = $db->column_info(undef, 'public', 'of_languages_clicks', '%');
    while (my $c = $columns->fetchrow_hashref) { say_ column => @$c{qw(COLUMN_NAME TYPE_NAME ORDINAL_POSITION)} }
}
