//! tokio-postgres: pipelined queries, typed parameters, portals, COPY, notifications, cancel.

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, TryStreamExt, future, stream};
use tokio::sync::mpsc;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, Error, IsolationLevel, NoTls, SimpleQueryMessage};

fn settings() -> Config {
    let var = |name: &str| env::var(name).unwrap();
    let mut c = Config::new();
    c.host(var("PGHOST")).port(var("PGPORT").parse().unwrap());
    c.user(var("PGUSER")).password(var("PGPASSWORD")).dbname(var("PGDATABASE"));
    c
}

/// A client, and the messages that come unasked.
async fn connect(settings: &Config) -> Result<(Client, mpsc::UnboundedReceiver<AsyncMessage>), Error> {
    let (client, mut connection) = settings.connect(NoTls).await?;
    let (tx, rx) = mpsc::unbounded_channel();
    let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            let _ = tx.send(message);
        }
    });
    Ok((client, rx))
}

fn code(e: &Error) -> String {
    e.code().map_or_else(|| format!("not PostgreSQL's: {e}"), |c| c.code().to_string())
}

async fn types(c: &Client) -> Result<(), Error> {
    let text = "SELECT $1::int2, $2::int8, $3::float8, $4::text, $5::bool, $6::timestamptz, $7::bytea, $8::int4[], $9::text";
    let statement = c.prepare(text).await?;
    let given: Vec<_> = statement.params().iter().map(|t| t.name().to_string()).collect();
    println!("parameters: {}", given.join(" "));
    let at = UNIX_EPOCH + Duration::from_millis(1_704_164_645_678);
    for _ in 0..2 {
        let nothing: Option<&str> = None;
        let row = c
            .query_one(
                &statement,
                &[&7i16, &i64::MAX, &1.5f64, &"zö🐍 '\"\\", &true, &at, &&[0u8, 255, 92][..], &vec![1i32, 2, 3], &nothing],
            )
            .await?;
        let then: SystemTime = row.get(5);
        println!(
            "types: {} | {} | {} | {} | {} | {} | {:?} | {:?} | {:?}",
            row.get::<_, i16>(0), row.get::<_, i64>(1), row.get::<_, f64>(2), row.get::<_, &str>(3), row.get::<_, bool>(4),
            then == at, row.get::<_, &[u8]>(6), row.get::<_, Vec<i32>>(7), row.get::<_, Option<&str>>(8),
        );
    }
    let typed = c.query_typed("SELECT $1 || 'x'", &[(&"a", Type::TEXT)]).await?;
    println!("typed: {}", typed[0].get::<_, &str>(0));
    for message in c.simple_query("SELECT 1 AS a; SELECT 2 AS b WHERE false").await? {
        match message {
            SimpleQueryMessage::Row(row) => println!("simple row: {} {}", row.columns()[0].name(), row.get(0).unwrap()),
            SimpleQueryMessage::CommandComplete(n) => println!("simple end: {n}"),
            _ => {}
        }
    }
    Ok(())
}

async fn transactions(c: &mut Client) -> Result<(), Error> {
    c.batch_execute("CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)").await?;
    let mut tx = c.build_transaction().isolation_level(IsolationLevel::Serializable).start().await?;
    tx.execute("INSERT INTO t VALUES ($1, $2)", &[&1i32, &"one"]).await?;
    let inner = tx.savepoint("s").await?;
    println!("error: {}", code(&inner.execute("SELECT 1 / $1::int", &[&0i32]).await.unwrap_err()));
    println!("failed block: {}", code(&inner.simple_query("SELECT 1").await.unwrap_err()));
    inner.rollback().await?;
    tx.commit().await?;
    let e = c.execute("INSERT INTO t VALUES ($1)", &[&1i32]).await.unwrap_err();
    let d = e.as_db_error().unwrap();
    println!("violation: {} | {:?} | {:?} | {:?} | {}", d.code().code(), d.constraint(), d.detail(), d.table(), d.severity());
    let e = c.execute("SELECT * FORM t", &[]).await.unwrap_err();
    println!("syntax: {:?} {}", e.as_db_error().unwrap().position(), e.as_db_error().unwrap().message());

    // Many at once on one connection: the driver sends them before the first answer.
    let statement = c.prepare("INSERT INTO t VALUES ($1, 'many') RETURNING id").await?;
    let (c1, s1) = (&*c, &statement);
    let all = (10..60).map(|id: i32| async move { c1.query_one(s1, &[&id]).await });
    let rows = future::try_join_all(all).await?;
    println!("pipelined: {}", rows.iter().map(|r| r.get::<_, i32>(0)).sum::<i32>());

    let tx = c.transaction().await?;
    let portal = tx.bind("SELECT n FROM generate_series(1, $1::int) n", &[&1000i32]).await?;
    let mut read = Vec::new();
    for rows in [10, 600, 600] {
        read.push(tx.query_portal(&portal, rows).await?.len());
    }
    println!("portal: {read:?}");
    tx.rollback().await?;
    let rows = c.query_raw("SELECT n FROM generate_series(1, 10000) n", Vec::<i32>::new()).await?;
    println!("stream: {}", rows.try_fold(0, async |sum, row| Ok(sum + row.get::<_, i32>(0))).await?);
    Ok(())
}

async fn copies(c: &Client) -> Result<(), Error> {
    let sink = c.copy_in("COPY t FROM STDIN").await?;
    let mut sink = std::pin::pin!(sink);
    sink.send(Bytes::from_static(b"1000\tcopied\n1001\t\\N\n")).await?;
    let n = sink.finish().await?;
    let out = c.copy_out("COPY (SELECT * FROM t WHERE id >= 1000 ORDER BY id) TO STDOUT").await?;
    let parts: Vec<Bytes> = out.try_collect().await?;
    println!("copy: {n} {:?}", String::from_utf8(parts.concat()).unwrap());
    let mut bad = std::pin::pin!(c.copy_in("COPY t FROM STDIN").await?);
    bad.send(Bytes::from_static(b"x\ty\n")).await?;
    println!("bad copy: {}", code(&bad.finish().await.unwrap_err()));
    Ok(())
}

async fn events(c: &Client, heard: &mut mpsc::UnboundedReceiver<AsyncMessage>) -> Result<(), Error> {
    let (other, _) = connect(&settings()).await?;
    c.batch_execute("LISTEN news; DO $$ BEGIN RAISE NOTICE 'hear this'; END $$").await?;
    other.query("SELECT pg_notify('news', $1)", &[&"hello"]).await?;
    for _ in 0..2 {
        match heard.recv().await.unwrap() {
            AsyncMessage::Notice(n) => println!("notice: {} {}", n.code().code(), n.message()),
            AsyncMessage::Notification(n) => println!("notification: {} {}", n.channel(), n.payload()),
            _ => unreachable!(),
        }
    }
    let sleeping = c.simple_query("SELECT pg_sleep(60)");
    let cancelling = async {
        let asleep = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active')";
        while !other.query_one(asleep, &[]).await.unwrap().get::<_, bool>(0) {}
        c.cancel_token().cancel_query(NoTls).await.unwrap();
    };
    println!("cancelled: {}", code(&future::join(sleeping, cancelling).await.0.unwrap_err()));
    println!("after it: {}", c.query_one("SELECT 1", &[]).await?.get::<_, i32>(0));
    Ok(())
}

async fn ours(c: &Client) -> Result<(), Error> {
    println!("== pgstream");
    let statement = c.prepare("LIST STORES").await?;
    println!("column: {} {}", statement.columns()[0].name(), statement.columns()[0].type_());
    for row in c.query(&statement, &[]).await? {
        if row.get::<_, &str>("Name") == "of_languages" {
            println!("stores: {} {}", row.get::<_, &str>("Name"), row.get::<_, &str>("Type"));
        }
    }
    println!("missing: {}", code(&c.execute("DROP STORE nope", &[]).await.unwrap_err()));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let (mut c, mut heard) = connect(&settings()).await?;
    let row = c.query_one("SELECT current_user::text, current_database()::text", &[]).await?;
    println!("session: {} {}", row.get::<_, &str>(0), row.get::<_, &str>(1));
    types(&c).await?;
    transactions(&mut c).await?;
    copies(&c).await?;
    events(&c, &mut heard).await?;
    println!("wrong password: {}", code(&connect(settings().password("wrong")).await.err().unwrap()));
    if env::var("TARGET").as_deref() == Ok("pgstream") {
        ours(&c).await?;
    }
    Ok(())
}
