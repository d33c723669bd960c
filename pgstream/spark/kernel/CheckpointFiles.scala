package org.apache.spark.sql.pgstream

import java.io.FileOutputStream
import java.nio.channels.FileChannel
import java.nio.file.{Files, NoSuchFileException, Path => NioPath, Paths, StandardCopyOption, StandardOpenOption}
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, FSDataInputStream, FileStatus, LocalFileSystem, Path, PathFilter, RawLocalFileSystem, UnsupportedFileSystemException}
import org.apache.hadoop.fs.permission.FsPermission

import org.apache.spark.sql.execution.streaming.checkpointing.{CheckpointFileManager, FileContextBasedCheckpointFileManager, FileSystemBasedCheckpointFileManager}
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/**
 * Checkpoints on a local file system without a `chmod` process for every file, and safe against a power cut: a file is
 * written aside, synced, moved into place atomically, and its folder is synced. Beside the newest file lies a copy of it,
 * for the disk that loses even that: without the offsets of a batch that a sink already has, its rows could not be told
 * from the next ones. The copy is not synced. Other file systems keep Spark's manager.
 */
class CheckpointFiles(path: Path, conf: Configuration) extends CheckpointFileManager {
  private val local = {
    val scheme = path.toUri.getScheme
    scheme == "file" || (scheme == null && path.getFileSystem(conf).isInstanceOf[LocalFileSystem])
  }
  // As Spark chooses: some file systems have Hadoop's older interface only.
  private lazy val other =
    try new FileContextBasedCheckpointFileManager(path, conf)
    catch { case _: UnsupportedFileSystemException => new FileSystemBasedCheckpointFileManager(path, conf) }
  private lazy val raw = { val f = new BareFiles; f.initialize(java.net.URI.create("file:///"), conf); f }

  private val spare = new SpareCopy

  private def nio(p: Path): NioPath = Paths.get(p.toUri.getPath)

  override def createAtomic(p: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    if (!local) other.createAtomic(p, overwrite)
    else {
      val target = nio(p)
      val aside = target.resolveSibling(s".${target.getFileName}.${UUID.randomUUID}.tmp")
      val file =
        try new FileOutputStream(aside.toFile)
        catch {
          case _: java.io.FileNotFoundException =>
            Files.createDirectories(target.getParent)
            new FileOutputStream(aside.toFile)
        }
      new CancellableFSDataOutputStream(new java.io.BufferedOutputStream(file, 8192)) {
        @volatile private var done = false
        override def close(): Unit = synchronized {
          if (!done) {
            done = true
            try {
              super.flush()
              underlyingStream.flush()
              file.getFD.sync()
              file.close()
              KillPoints.at("checkpoint before file")
              spare.of(aside) {
                CheckpointFiles.place(aside, target, overwrite, p)
                target
              }
              CheckpointFiles.syncFolder(target.getParent)
              KillPoints.at("checkpoint after file")
            } finally { file.close(); Files.deleteIfExists(aside) }
          }
        }
        override def cancel(): Unit = synchronized {
          done = true
          file.close()
          Files.deleteIfExists(aside)
        }
      }
    }

  override def open(p: Path): FSDataInputStream = if (local) raw.open(p, 8192) else other.open(p)
  /** Without copies, and what a killed process left half-written: Spark takes names for numbers. */
  override def list(p: Path, filter: PathFilter): Array[FileStatus] =
    if (local) raw.listStatus(p, (f: Path) => !f.getName.startsWith(".") && filter.accept(f)) else other.list(p, filter)
  override def mkdirs(p: Path): Unit = if (local) Files.createDirectories(nio(p)) else other.mkdirs(p)
  override def exists(p: Path): Boolean = if (local) Files.exists(nio(p)) else other.exists(p)
  override def delete(p: Path): Unit = if (local) raw.delete(p, true) else other.delete(p)
  override def isLocal: Boolean = local
  override def createCheckpointDirectory(): Path = { mkdirs(path); if (local) raw.makeQualified(path) else path }
}

object CheckpointFiles {
  def place(aside: NioPath, target: NioPath, overwrite: Boolean, named: Path): Unit = {
    if (overwrite) Files.move(aside, target, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING)
    else
      // A link fails when the name exists, which a move does not: two writers of one batch must not both succeed.
      try Files.createLink(target, aside)
      catch { case _: java.nio.file.FileAlreadyExistsException => throw new FileAlreadyExistsException(s"$named exists") }
  }

  def syncFolder(folder: NioPath): Unit =
    try {
      val channel = FileChannel.open(folder, StandardOpenOption.READ)
      try channel.force(true)
      finally channel.close()
    } catch { case _: NoSuchFileException => () }
}

/** The copy of a folder's newest file: `.NAME.copy`. Snapshots of state have none: an older one and the changes since do. */
private class SpareCopy {
  private val Longest = 64L << 20
  private val last = new java.util.concurrent.ConcurrentHashMap[String, NioPath]

  /** Copy what is about to be placed; the copy gets its name right after `place`, which returns the target. */
  def of(aside: NioPath)(place: => NioPath): Unit = {
    val copy = aside.resolveSibling(s"${aside.getFileName}.copy")
    try {
      val small = !aside.getFileName.toString.contains(".zip.") && Files.size(aside) <= Longest
      if (small) Files.copy(aside, copy)
      val target = place
      if (small) name(copy, target)
    } finally Files.deleteIfExists(copy)
  }

  private def name(copy: NioPath, target: NioPath): Unit = {
    val named = target.resolveSibling(s".${target.getFileName}.copy")
    Files.move(copy, named, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING)
    val before = last.put(target.getParent.toString, named)
    if (before != null && before != named) Files.deleteIfExists(before)
  }
}

/** Hadoop's raw local file system, setting permissions through the JDK instead of a process. */
class BareFiles extends RawLocalFileSystem {
  override def setPermission(p: Path, permission: FsPermission): Unit =
    Files.setPosixFilePermissions(
      pathToFile(p).toPath,
      java.nio.file.attribute.PosixFilePermissions.fromString(FsPermission.createImmutable(permission.toShort).toString.take(9))
    )
}

/** What `fs.file.impl` names: used by the state store for its snapshot files. */
class LocalFiles extends LocalFileSystem(new BareFiles)
