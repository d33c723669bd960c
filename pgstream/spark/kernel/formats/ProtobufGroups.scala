package org.apache.spark.sql.pgstream

import com.google.protobuf.DescriptorProtos.{DescriptorProto, FieldDescriptorProto, FileDescriptorProto}

/**
 * Groups of proto2, which Wire knows not: a group is a message and a field of it at once. Texts are given to Wire with
 * the two apart, the field under a name that says so; in what comes out the field is a group again.
 */
object ProtobufGroups {
  private val Mark = "__pgstream_group"
  private val Group = """(?<![\w.])group\s+([A-Za-z_]\w*)\s*=\s*(\w+)\s*(\[[^\]]*\])?\s*\{""".r
  private val NoMessage = """\b(oneof|extend)\s+[\w.]+\s*$""".r

  def asMessages(text: String): String = if (!text.contains("group")) text else {
    // What is code, at the same places as in the text. From the last group on, so that those inside come first.
    val code = withoutAside(text)
    val all = new StringBuilder(text)
    Group.findAllMatchIn(code.toString).map(m => (m.start, m.group(1), m.group(2), Option(m.group(3)).map(_ => m.start(3) -> m.end(3)), m.end)).toSeq
      .reverse.foreach { case (start, name, number, options, open) =>
        val end = closing(code, open)
        def parts(of: StringBuilder) = {
          val said = options.fold("") { case (from, to) => " " + of.substring(from, to) }
          (s"$name ${name.toLowerCase(java.util.Locale.ROOT)}$Mark = $number$said;", s"message $name {${of.substring(open, end)}}")
        }
        // The field stands behind its label where the group was; the message before that, or behind what takes none.
        val around = opening(code, start)
        val outside = around >= 0 && NoMessage.findFirstIn(code.substring(0, around)).isDefined
        val place = if (outside) closing(code, around + 1) + 1 else statement(code, start)
        for (of <- Seq(all, code)) {
          val (field, message) = parts(of)
          if (outside) {
            of.insert(place, s" $message")
            of.replace(start, end + 1, field)
          } else {
            of.replace(start, end + 1, field)
            of.insert(place, s" $message ")
          }
        }
      }
    all.toString
  }

  /** The text with blanks for its comments and for what is in quotes. */
  private def withoutAside(text: String): StringBuilder = {
    val out = new StringBuilder(text)
    var at = 0
    while (at < text.length) {
      val end = text(at) match {
        case '/' if text.startsWith("//", at) => from(text.indexOf('\n', at), text)
        case '/' if text.startsWith("/*", at) => from(text.indexOf("*/", at + 2), text) + 2
        case quote @ ('"' | '\'') =>
          var i = at + 1
          while (i < text.length && text(i) != quote && text(i) != '\n') i += (if (text(i) == '\\') 2 else 1)
          i + 1
        case _ => at
      }
      if (end == at) at += 1
      else while (at < end.min(text.length)) { out(at) = ' '; at += 1 }
    }
    out
  }

  private def from(found: Int, text: String): Int = if (found < 0) text.length else found

  /** The place of the brace that closes the block whose inside begins here. */
  private def closing(code: StringBuilder, inside: Int): Int = {
    var depth = 1
    var at = inside
    while (at < code.length && { if (code(at) == '{') depth += 1 else if (code(at) == '}') depth -= 1; depth > 0 }) at += 1
    if (depth > 0) throw new Malformed("a group does not end")
    at
  }

  /** The place of the brace that opens the block around here; -1 outside of all. */
  private def opening(code: StringBuilder, from: Int): Int = {
    var depth = 1
    var at = from - 1
    while (at >= 0 && { if (code(at) == '}') depth += 1 else if (code(at) == '{') depth -= 1; depth > 0 }) at -= 1
    at
  }

  /** Behind the statement or the brace before here. */
  private def statement(code: StringBuilder, from: Int): Int = {
    var at = from
    while (at > 0 && !";{}".contains(code(at - 1))) at -= 1
    at
  }

  /** Fields of that name as groups. */
  def restore(file: FileDescriptorProto.Builder): Unit = file.getMessageTypeBuilderList.forEach(restore(_))

  private def restore(m: DescriptorProto.Builder): Unit = {
    m.getFieldBuilderList.forEach(restore(_))
    m.getNestedTypeBuilderList.forEach(restore(_))
  }

  private def restore(f: FieldDescriptorProto.Builder): Unit = if (f.getName.endsWith(Mark))
    f.setName(f.getName.stripSuffix(Mark)).setType(FieldDescriptorProto.Type.TYPE_GROUP).clearJsonName()
}
