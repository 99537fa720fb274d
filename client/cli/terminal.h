// client/cli/terminal.h: an output stream and its capabilities.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "client/lib/connection.h"

namespace trainyard::cli {

enum class Style { kPlain, kDim, kBold, kGood, kBad, kBusy, kNotice };

/// Color: off if the stream is not a terminal, with NO_COLOR or TRAINYARD_NO_COLOR (not empty),
/// TERM=dumb or --no-color; on with FORCE_COLOR (not empty, not 0) unless --no-color says
/// otherwise.
bool wants_colour(bool is_terminal, bool no_colour_flag, const client::Environment& env);

class Terminal {
 public:
  Terminal(std::FILE* file, bool no_colour_flag, const client::Environment& env);

  bool is_terminal() const { return is_terminal_; }
  bool colour() const { return colour_; }
  bool utf8() const { return utf8_; }
  /// Current columns; 80 if unknown. Queried each time, to follow a resized window.
  int width() const;
  /// Columns of a line that people read; 0, without a bound, in a file or pipe.
  int line_width() const { return is_terminal_ ? width() : 0; }
  std::string styled(Style style, std::string_view text) const;

  /// Writes and flushes at once; false if the reader has gone away.
  bool write(std::string_view text);
  bool line(std::string_view text);

 private:
  std::FILE* file_;
  bool is_terminal_;
  bool colour_;
  bool utf8_;
};

std::string paint(bool colour, Style style, std::string_view text);

/// Escapes text from elsewhere: control bytes, invalid UTF-8 and characters that reorder the line
/// become \xNN or \u{NNNN}. Tabs and newlines too: a cell is one line.
std::string safe_text(std::string_view text);
/// Safe text in lines of at most `width` columns, broken at blanks. Those behind the first begin
/// with `indent` blanks; `used` columns of the first are taken. Unchanged where too little is left.
std::string wrapped(std::string_view text, int width, int indent = 0, int used = 0);
/// Columns that UTF-8 text takes, approximately: code points, without combining marks, wide ones
/// twice.
int display_width(std::string_view text);

}  // namespace trainyard::cli
