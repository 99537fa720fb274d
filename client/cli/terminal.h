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
/// Columns that UTF-8 text takes, approximately: code points, without combining marks, wide ones
/// twice.
int display_width(std::string_view text);

}  // namespace trainyard::cli
