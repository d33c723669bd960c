package org.apache.spark.sql.execution.streaming.state.pgstream

import java.io.File
import java.lang.reflect.Field
import java.util.Arrays
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration
import org.rocksdb.{BlockBasedTableConfig, FlushOptions, Options, ReadOptions, RocksDB => Native, RocksIterator, Statistics, WriteOptions}

import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.timers.TimerStateUtils
import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBConf, RocksDBEventForwarder, RocksDBLoader, RocksDBStateStoreProvider}

/**
 * RocksDB as Spark keeps state in it, with a memory of the values that were read or written last.
 *
 * An operator reads what is kept of a key and then writes it, and to count the keys Spark reads before each write whether
 * there is one: the same key two or three times in a row, of which RocksDB, in whose tables a lookup is the dearest thing that
 * an operator does, is now asked once. What is kept, and how, is as without it.
 */
class StateStores extends RocksDBStateStoreProvider {
  protected def timersByKey: Boolean = true

  override def createRocksDB(root: String, conf: RocksDBConf, local: File, hadoop: Configuration, id: String, families: Boolean,
      checkpointIds: Boolean, partition: Int, events: Option[RocksDBEventForwarder], unique: Option[String]): RocksDB =
    new RememberingDB(root, conf, local, hadoop, id, families, checkpointIds, partition, events, unique, timersByKey)
}

/**
 * The same with timers by time alone. Spark keeps each a second time, by key, to tell whether it is set and to list those of a
 * key: our operators know the one timer that a key has, and set it within `Sure`.
 */
class LeanStateStores extends StateStores {
  override protected def timersByKey: Boolean = false
}

/**
 * Spark opens RocksDB anew when it loads a version that is not the one it has: whenever it has, ours stands before it.
 *
 * What Spark keeps for itself beside an operator's rows, timers and the lengths of lists, is not counted: nobody is told how much
 * that is (`state_rows` is without it), and each of them cost a read.
 */
class RememberingDB(root: String, conf: RocksDBConf, local: File, hadoop: Configuration, id: String, families: Boolean,
    checkpointIds: Boolean, partition: Int, events: Option[RocksDBEventForwarder], unique: Option[String], timersByKey: Boolean)
    extends {
      override val rocksDbOptions: Options = {
        RocksDBLoader.loadLibrary() // Spark's way, before options do it on a thread that may be interrupted meanwhile
        new ClosingOptions
      }
    } with RocksDB(root, conf, local, hadoop, id, families, checkpointIds, partition, events, unique) {
  private val uncounted = ConcurrentHashMap.newKeySet[String]
  @volatile private var memory: Remembering = _

  // Spark's constructor makes its own all the same, which nobody sees or closes: 28 KB outside the JVM's heap.
  RememberingDB.unseen.get(this).asInstanceOf[Options].close()

  // The cache is in pieces of some megabytes, half of each taken by what is not written yet: a filter of a large table
  // may have no room there, and is then read from its file, and summed up, at each lookup. Beside the cache it takes ten bits a key.
  rocksDbOptions.tableFormatConfig match {
    case t: BlockBasedTableConfig => rocksDbOptions.setTableFormatConfig(t.setCacheIndexAndFilterBlocks(false))
    case _ => ()
  }

  override def load(version: Long, checkpoint: Option[String], readOnly: Boolean): RocksDB = {
    super.load(version, checkpoint, readOnly)
    remember()
  }

  override def loadFromSnapshot(snapshot: Long, version: Long, from: Option[String], to: Option[String]): RocksDB = {
    super.loadFromSnapshot(snapshot, version, from, to)
    remember()
  }

  private def remember(): RocksDB = {
    RememberingDB.held.get(this) match {
      case null | _: Remembering => ()
      case plain: Native =>
        memory = new Remembering(plain)
        RememberingDB.held.set(this, memory)
    }
    this
  }

  override def createColFamilyIfAbsent(name: String, internal: Boolean): Short = {
    if (internal) uncounted.add(name)
    super.createColFamilyIfAbsent(name, internal)
  }

  private def left(family: String): Boolean = !timersByKey && family.endsWith(TimerStateUtils.KEY_TO_TIMESTAMP_CF)

  /** One that is not kept is there for who takes it away, which is Spark when it has gone off. */
  override def get(key: Array[Byte], family: String): Array[Byte] =
    if (left(family)) Option(Sure.looked.get).getOrElse(Sure.There).value else super.get(key, family)

  /** Below a write there is one read, which counts; what Spark's own is told, `none`, changes no count. */
  private def counting(family: String, none: Sure)(write: => Unit): Unit = {
    val told = if (uncounted.contains(family)) none else Sure.counted.get
    if (left(family)) ()
    else if (told == null || memory == null) write
    else {
      memory.told = told
      try write finally memory.told = null
    }
  }

  override def put(key: Array[Byte], value: Array[Byte], family: String, prefixed: Boolean, derived: Boolean): Unit =
    counting(family, Sure.There)(super.put(key, value, family, prefixed, derived))
  override def putList(key: Array[Byte], values: List[Array[Byte]], family: String, prefixed: Boolean, derived: Boolean): Unit =
    counting(family, Sure.There)(super.putList(key, values, family, prefixed, derived))
  override def merge(key: Array[Byte], value: Array[Byte], family: String, prefixed: Boolean, derived: Boolean): Unit =
    counting(family, Sure.There)(super.merge(key, value, family, prefixed, derived))
  override def mergeList(key: Array[Byte], values: List[Array[Byte]], family: String, prefixed: Boolean, derived: Boolean): Unit =
    counting(family, Sure.There)(super.mergeList(key, values, family, prefixed, derived))
  override def remove(key: Array[Byte], family: String, prefixed: Boolean, derived: Boolean): Unit =
    counting(family, Sure.Nowhere)(super.remove(key, family, prefixed, derived))
}

object RememberingDB {
  private val held = field("db")
  private val unseen = field("rocksDbOptions")

  private def field(name: String): Field = {
    val f = classOf[RocksDB].getDeclaredField(name)
    f.setAccessible(true)
    f
  }
}

/**
 * Options that are closed with their statistics, which Spark forgets: half a megabyte outside the JVM's heap for each store that
 * was ever opened. Spark makes them in its constructor, where only its options get to see them.
 */
private final class ClosingOptions extends Options {
  private var made: List[Statistics] = Nil

  override def setStatistics(s: Statistics): Options = {
    made ::= s
    super.setStatistics(s)
  }

  override def statistics(): Statistics = {
    val s = super.statistics()
    if (s != null) made ::= s
    s
  }

  override def close(): Unit = {
    super.close()
    made.foreach(_.close())
  }
}

/** What a read of Spark's finds, where the operator knows it. */
final class Sure private (val value: Array[Byte])

object Sure {
  // As long as a row of one column that is NULL, behind its version: it may be looked at.
  val There = new Sure(new Array[Byte](17))
  val Nowhere = new Sure(null)
  private[pgstream] val counted, looked = new ThreadLocal[Sure]

  /** The write of one value, or its removal, to count which Spark looks whether there is one. Not with a time to live. */
  def write(there: Boolean)(one: => Unit): Unit = within(counted, there)(one)
  /** The setting of a timer, always within this, or its removal, before which Spark looks whether it is set. */
  def timer(there: Boolean)(one: => Unit): Unit = within(looked, there)(one)

  private def within(told: ThreadLocal[Sure], there: Boolean)(one: => Unit): Unit = {
    told.set(if (there) There else Nowhere)
    try one finally told.set(null)
  }
}

/**
 * A database as Spark uses it: `of` does the work. One task at a time has it, as Spark sees to.
 *
 * A value's place is its key's hash: the next key with that place takes it. Large values are not kept, so that it is at most
 * some hundred kilobytes a store.
 */
private final class Remembering(of: Native) extends Native(of.getNativeHandle) {
  import Remembering._
  // The handle is freed once, by `of`.
  disOwnNativeHandle()

  var told: Sure = _
  private val keys = new Array[Array[Byte]](Places)
  private val values = new Array[Array[Byte]](Places)

  private def place(key: Array[Byte]): Int = {
    val h = Arrays.hashCode(key)
    (h ^ (h >>> 16)) & (Places - 1)
  }

  private def know(at: Int, key: Array[Byte], value: Array[Byte]): Unit =
    if (value != null && value.length > Largest) keys(at) = null
    else { keys(at) = key; values(at) = value }

  override def get(o: ReadOptions, key: Array[Byte]): Array[Byte] = {
    val sure = if (told != null) told else Sure.looked.get
    if (sure != null) sure.value
    else {
      val at = place(key)
      if (keys(at) != null && Arrays.equals(keys(at), key)) values(at)
      else {
        val value = of.get(o, key)
        know(at, key, value)
        value
      }
    }
  }

  override def put(o: WriteOptions, key: Array[Byte], value: Array[Byte]): Unit = {
    of.put(o, key, value)
    know(place(key), key, value)
  }

  override def delete(o: WriteOptions, key: Array[Byte]): Unit = {
    of.delete(o, key)
    know(place(key), key, null)
  }

  override def merge(o: WriteOptions, key: Array[Byte], value: Array[Byte]): Unit = {
    of.merge(o, key, value)
    keys(place(key)) = null
  }

  override def newIterator(): RocksIterator = of.newIterator()
  override def getProperty(name: String): String = of.getProperty(name)
  override def flush(o: FlushOptions): Unit = of.flush(o)
  override def compactRange(): Unit = of.compactRange()
  override def cancelAllBackgroundWork(wait: Boolean): Unit = of.cancelAllBackgroundWork(wait)
  override def isOwningHandle(): Boolean = of.isOwningHandle
  override def isClosed(): Boolean = of.isClosed
  override def closeE(): Unit = of.closeE()
  override def close(): Unit = of.close()
}

private object Remembering {
  private val Places = 256
  private val Largest = 1024
}
