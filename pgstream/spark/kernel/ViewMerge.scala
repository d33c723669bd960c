package org.apache.spark.sql.pgstream

import java.io.ByteArrayInputStream
import java.sql.Connection

import org.postgresql.PGConnection

/** The statements that bring a batch into a view's table; the caller holds the transaction. `number`: among its views. */
class ViewMerge(c: Connection, target: ViewTarget, layout: ViewLayout, number: Int = 0) {
  import ViewMerge.quote

  private val names = layout.names.map(quote)
  private val list = names.mkString(", ")
  private val keys = layout.key.map(quote)
  private val small = s"pgstream_fresh_$number"
  private val fresh = s"pg_temp.$small"

  /** The unlogged staging table for large batches, and the session's own small one. */
  def prepare(): Unit = {
    leftovers().foreach(t => run(ViewMerge.dropped(target, s"${target.home}.${quote(t)}")))
    run(s"CREATE UNLOGGED TABLE IF NOT EXISTS ${target.staging} (LIKE ${target.table}${ViewMerge.HiddenColumns})")
    run(s"TRUNCATE ${target.staging}")
    if (layout.changes)
      run(s"CREATE TEMP TABLE $small (LIKE ${target.table}${ViewMerge.HiddenColumns}) ON COMMIT DELETE ROWS")
    // Staging rows keep NULLs of a deleted key's other columns.
    run(ViewMerge.dropNotNull(target.staging))
    if (layout.changes) {
      run(ViewMerge.dropNotNull(fresh))
      Seq(target.staging, fresh).foreach(t => run(ViewMerge.dropDomains(t)))
    }
  }

  /** Staging tables of earlier starts: the same name with another attempt. A start that still lives is fenced. */
  private def leftovers(): Seq[String] = {
    val own = target.staging.stripPrefix(target.home + ".\"").stripSuffix("\"")
    val s = c.prepareStatement(
      s"SELECT tablename FROM pg_tables WHERE schemaname = '${target.home}' AND tablename <> ? AND tablename ~ ?")
    try {
      s.setString(1, own)
      s.setString(2, "^" + java.util.regex.Pattern.compile("[^A-Za-z0-9_]").matcher(own.replaceAll("_\\d+$", "")).replaceAll(".") + "_[0-9]+$")
      val r = s.executeQuery()
      Iterator.continually(r).takeWhile(_.next()).map(_.getString(1)).toList
    } finally s.close()
  }

  def run(parts: Seq[TaskRows]): Unit = {
    val staged = parts.filter(_.staged)
    val small = parts.filterNot(_.staged).filter(_.rows > 0)
    if (!layout.changes) append(small, staged)
    else {
      val from = load(small, staged)
      val only = own(if (staged.isEmpty) staged else parts)
      if (layout.upsert) upsert(from, only, staged.isEmpty, parts) else exchange(s"$from$only", parts)
    }
    if (staged.nonEmpty) run(s"TRUNCATE ${target.staging}")
  }

  private def append(small: Seq[TaskRows], staged: Seq[TaskRows]): Unit = {
    small.foreach(p => copy(target.table, names, p.copy))
    if (staged.nonEmpty) run(s"INSERT INTO ${target.table} ($list) SELECT $list FROM ${target.staging}${own(staged)}")
  }

  /** The rows of all tasks in one table; its name. */
  private def load(small: Seq[TaskRows], staged: Seq[TaskRows]): String = {
    val from = if (staged.isEmpty) fresh else target.staging
    if (staged.isEmpty) run("SET LOCAL pgstream.attempt = '0'")
    small.foreach { p =>
      if (staged.nonEmpty) run(s"SET LOCAL pgstream.attempt = '${p.attempt}'")
      copy(from, names ++ ViewMerge.HiddenNames, p.copy)
    }
    from
  }

  /** Rows without a key: as many as are taken back of those that are equal, then those that are added. */
  private def exchange(rows: String, parts: Seq[TaskRows]): Unit = {
    def all(of: String): String = names.map(n => s"$of.$n").mkString(", ")
    if (parts.exists(_.deletes > 0))
      run(s"WITH gone AS (SELECT $list, count(*) AS __n FROM (SELECT * FROM $rows) s WHERE s.__delete GROUP BY $list), " +
        s"found AS (SELECT t.ctid AS __at, g.__n, row_number() OVER (PARTITION BY ${all("t")}) AS __i " +
        s"FROM ${target.table} t JOIN gone g ON hash_record(ROW(${all("t")})) = hash_record(ROW(${all("g")})) " +
        s"AND ROW(${all("t")}) IS NOT DISTINCT FROM ROW(${all("g")})) " +
        s"DELETE FROM ${target.table} t USING found f WHERE t.ctid = f.__at AND f.__i <= f.__n")
    run(s"INSERT INTO ${target.table} ($list) SELECT $list FROM (SELECT * FROM $rows) s WHERE NOT s.__delete")
  }

  private def upsert(from: String, only: String, small: Boolean, parts: Seq[TaskRows]): Unit =
    if (keys.isEmpty) single(from, only)
    else {
      // Within a task, which is one partition, the last row of a key wins; between tasks that of the latest event time.
      // What the driver wrote has one row a key and task already; staged text came in several pieces.
      val by = keys.mkString(", ")
      val task =
        if (layout.unique || small) s"$from$only"
        else s"(SELECT DISTINCT ON ($by, __attempt) * FROM $from$only ORDER BY $by, __attempt, __offset DESC) p"
      val order = if (layout.unique) "" else s" ORDER BY $by, __time DESC NULLS LAST, __offset DESC NULLS LAST"
      val on = if (layout.unique) "" else s"DISTINCT ON ($by) "
      val last = s"(SELECT $on* FROM $task$order) s"
      if (parts.exists(_.deletes > 0)) delete(last, parts.exists(_.nullKeyDeletes))
      val sets = names.filterNot(keys.contains).map(n => s"$n = EXCLUDED.$n")
      val action = if (sets.isEmpty) "NOTHING" else "UPDATE SET " + sets.mkString(", ")
      run(s"INSERT INTO ${target.table} ($list) SELECT $list FROM $last WHERE NOT s.__delete " +
        s"ON CONFLICT (${keys.mkString(", ")}) DO $action")
    }

  /** Staged rows of attempts that failed, or of a worker that died, are not ours. */
  private def own(parts: Seq[TaskRows]): String =
    if (parts.isEmpty) "" else s" WHERE __attempt IN (${parts.map(_.attempt).mkString(", ")})"

  /** `=` can use the index; rows with a NULL in the key need the slower comparison. */
  private def delete(last: String, nulls: Boolean): Unit = {
    val t = target.table
    run(s"DELETE FROM $t t USING $last WHERE s.__delete AND " + keys.map(k => s"t.$k = s.$k").mkString(" AND "))
    if (nulls)
      run(s"DELETE FROM $t t USING $last WHERE s.__delete AND (" + keys.map(k => s"s.$k IS NULL").mkString(" OR ") +
        ") AND " + keys.map(k => s"t.$k IS NOT DISTINCT FROM s.$k").mkString(" AND "))
  }

  /** A view of one row: an aggregate without GROUP BY. */
  private def single(from: String, only: String): Unit = {
    run(s"DELETE FROM ${target.table}")
    run(s"INSERT INTO ${target.table} ($list) SELECT $list FROM " +
      s"(SELECT * FROM $from$only ORDER BY __time DESC NULLS LAST, __offset DESC NULLS LAST LIMIT 1) s WHERE NOT s.__delete")
  }

  private def copy(table: String, columns: Seq[String], text: Array[Byte]): Unit = {
    c.unwrap(classOf[PGConnection]).getCopyAPI
      .copyIn(s"COPY $table (${columns.mkString(", ")}) FROM STDIN", new ByteArrayInputStream(text))
    KillPoints.at("view after copy")
  }

  private def run(sql: String): Unit = {
    val s = c.createStatement()
    try s.execute(sql)
    finally s.close()
  }
}

object ViewMerge {
  /** Take the staging tables away; the caller commits. */
  def drop(c: Connection, targets: Seq[ViewTarget]): Unit = {
    val s = c.createStatement()
    try {
      s.execute("SET LOCAL lock_timeout = '5s'")
      targets.foreach(t => s.execute(dropped(t, t.staging)))
    } finally s.close()
  }

  /**
   * A table of ours goes with what clients have made that names it, which they can by its number. Where they hold a lock
   * on that, or an earlier start of the query on the table, it stays for another start. In a store's database nothing else goes.
   */
  private def dropped(target: ViewTarget, table: String): String =
    if (target.home != ViewTarget.Ours) s"DROP TABLE IF EXISTS $table"
    else s"""DO $$$$ DECLARE was text := current_setting('lock_timeout'); BEGIN
       |SET LOCAL lock_timeout = '5s'; DROP TABLE IF EXISTS $table CASCADE; PERFORM set_config('lock_timeout', was, true);
       |EXCEPTION WHEN lock_not_available THEN NULL; END $$$$""".stripMargin

  val HiddenNames: Seq[String] = Seq("__delete", "__time", "__offset")

  def quote(name: String): String = "\"" + name.replace("\"", "\"\"") + "\""

  val HiddenColumns: String =
    ", __delete boolean, __time timestamptz, __offset bigint, " +
      "__attempt bigint DEFAULT current_setting('pgstream.attempt', true)::bigint"

  def dropNotNull(table: String): String =
    s"""DO $$$$ DECLARE n name; BEGIN
       |FOR n IN SELECT attname FROM pg_attribute WHERE attrelid = '${table.replace("'", "''")}'::regclass AND attnum > 0 AND attnotnull
       |LOOP EXECUTE format('ALTER TABLE ${table.replace("'", "''")} ALTER COLUMN %I DROP NOT NULL', n); END LOOP; END $$$$""".stripMargin

  /** A domain may take no NULL either: its columns become of the type that it is of, and sort and compare as before. */
  private def dropDomains(table: String): String = {
    val literal = table.replace("'", "''")
    s"""DO $$$$ DECLARE name name; base text; BEGIN
       |FOR name, base IN WITH RECURSIVE d(attname, type, modifier) AS (
       |  SELECT attname, atttypid, atttypmod FROM pg_attribute WHERE attrelid = '$literal'::regclass AND attnum > 0
       |  UNION ALL SELECT d.attname, t.typbasetype, t.typtypmod FROM d JOIN pg_type t ON t.oid = d.type WHERE t.typtype = 'd')
       |SELECT o.attname, format_type(o.type, o.modifier) || COALESCE(' COLLATE ' || NULLIF(a.attcollation, 0)::regcollation, '')
       |  FROM d o JOIN pg_type t ON t.oid = o.type AND t.typtype <> 'd'
       |  JOIN pg_attribute a ON a.attrelid = '$literal'::regclass AND a.attname = o.attname AND a.atttypid <> o.type
       |LOOP EXECUTE format('ALTER TABLE $literal ALTER COLUMN %I TYPE %s', name, base); END LOOP; END $$$$""".stripMargin
  }
}
