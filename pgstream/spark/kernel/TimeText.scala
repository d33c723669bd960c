package org.apache.spark.sql.pgstream

import java.time.{LocalDate, LocalDateTime, LocalTime, ZoneOffset}

/** Timestamps, dates and times of day as text, both ways. Microseconds since the epoch, as Spark keeps them. */
object TimeText {
  private val Day = 86400000000L

  def date(out: Bytes, days: Int): Unit = {
    val d = LocalDate.ofEpochDay(days.toLong)
    if (d.getYear < 0) out.put('-')
    day(out, math.abs(d.getYear), d)
  }

  private def day(out: Bytes, year: Int, d: LocalDate): Unit = {
    if (year < 10000) out.padded(year, 4) else out.digits(year.toLong)
    out.put('-'); out.padded(d.getMonthValue, 2); out.put('-'); out.padded(d.getDayOfMonth, 2)
  }

  /** As PostgreSQL writes a date, which has no year 0: false when ` BC` must follow. */
  def pgDate(out: Bytes, days: Int): Boolean = {
    val d = LocalDate.ofEpochDay(days.toLong)
    day(out, if (d.getYear > 0) d.getYear else 1 - d.getYear, d)
    d.getYear > 0
  }

  /** `2026-01-01 00:00:00.123`: no fraction when it is zero, no trailing zeros. */
  def timestamp(out: Bytes, micros: Long, separator: Char): Unit = {
    date(out, Math.floorDiv(micros, Day).toInt)
    out.put(separator)
    time(out, Math.floorMod(micros, Day))
  }

  /** As PostgreSQL writes a timestamp; `zone` follows the time. */
  def pgTimestamp(out: Bytes, micros: Long, zone: String): Unit = {
    val common = pgDate(out, Math.floorDiv(micros, Day).toInt)
    out.put(' ')
    time(out, Math.floorMod(micros, Day))
    out.ascii(zone)
    if (!common) out.ascii(" BC")
  }

  /** A time of day, which Spark keeps in nanoseconds. */
  def clock(out: Bytes, nanos: Long): Unit = time(out, nanos / 1000)

  private def time(out: Bytes, rest: Long): Unit = {
    val seconds = (rest / 1000000).toInt
    out.padded(seconds / 3600, 2); out.put(':'); out.padded(seconds / 60 % 60, 2); out.put(':'); out.padded(seconds % 60, 2)
    var fraction = (rest % 1000000).toInt
    if (fraction != 0) {
      out.put('.')
      var width = 6
      while (fraction % 10 == 0) { fraction /= 10; width -= 1 }
      out.padded(fraction, width)
    }
  }

  private def two(s: String, at: Int): Int = {
    val a = s.charAt(at) - '0'
    val b = s.charAt(at + 1) - '0'
    if (a < 0 || a > 9 || b < 0 || b > 9) throw new IllegalArgumentException(s)
    a * 10 + b
  }

  private def expect(s: String, at: Int, c: Char): Unit = if (s.charAt(at) != c) throw new IllegalArgumentException(s)

  def parseDate(s: String): Int = {
    if (s.length != 10) throw new IllegalArgumentException(s)
    LocalDate.parse(s).toEpochDay.toInt
  }

  /** Read `yyyy-MM-dd<separator>HH:mm:ss[.f{1,9}]`, with `Z` or `+hh[:mm]` when `zoned` (absent means UTC). */
  def parseTimestamp(s: String, separator: Char, zoned: Boolean): Long = {
    if (s.length < 19) throw new IllegalArgumentException(s)
    expect(s, 4, '-'); expect(s, 7, '-'); expect(s, 10, separator); expect(s, 13, ':'); expect(s, 16, ':')
    val date = LocalDate.of(two(s, 0) * 100 + two(s, 2), two(s, 5), two(s, 8))
    val time = LocalTime.of(two(s, 11), two(s, 14), two(s, 17))
    val at = fractionEnd(s, 19)
    val offset =
      if (at == s.length) 0
      else if (!zoned) throw new IllegalArgumentException(s)
      else ZoneOffset.of(s.substring(at)).getTotalSeconds
    (LocalDateTime.of(date, time).toEpochSecond(ZoneOffset.UTC) - offset) * 1000000L + fraction(s, 19, at)
  }

  /** Read `HH:mm:ss[.f{1,9}]`: nanoseconds, of whole microseconds. */
  def parseClock(s: String): Long = {
    if (s.length < 8) throw new IllegalArgumentException(s)
    expect(s, 2, ':'); expect(s, 5, ':')
    val seconds = LocalTime.of(two(s, 0), two(s, 3), two(s, 6)).toSecondOfDay
    val at = fractionEnd(s, 8)
    if (at != s.length) throw new IllegalArgumentException(s)
    (seconds * 1000000L + fraction(s, 8, at)) * 1000L
  }

  /** Where the digits after a point end, if there is one at `from`. */
  private def fractionEnd(s: String, from: Int): Int =
    if (from >= s.length || s.charAt(from) != '.') from
    else {
      var at = from + 1
      while (at < s.length && s.charAt(at) >= '0' && s.charAt(at) <= '9') at += 1
      if (at == from + 1 || at - from > 10) throw new IllegalArgumentException(s)
      at
    }

  /** The microseconds of the digits between a point and `end`. */
  private def fraction(s: String, from: Int, end: Int): Long = {
    var micros = 0L
    var n = 0
    while (n < 6) {
      micros = micros * 10 + (if (from + 1 + n < end) s.charAt(from + 1 + n) - '0' else 0)
      n += 1
    }
    micros
  }
}
