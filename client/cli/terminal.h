// client/cli/terminal.h: an output stream and its capabilities.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "client/lib/connection.h"
#include "src/base/safe_text.h"

namespace trainyard::cli {

enum class Style { kPlain, kDim, kBold, kGood, kBad, kBusy, kNotice };

/// Returns whether to use color. Off if the stream is not a terminal, if NO_COLOR or
/// TRAINYARD_NO_COLOR is set and not empty, or with TERM=dumb; FORCE_COLOR (not empty, not 0)
/// overrides these. Always off with --no-color.
bool wants_colour(bool is_terminal, bool no_colour_flag, const client::Environment& env);

class Terminal {
 public:
  Terminal(std::FILE* file, bool no_colour_flag, const client::Environment& env);

  bool is_terminal() const { return is_terminal_; }
  bool colour() const { return colour_; }
  bool utf8() const { return utf8_; }
  /// Returns the terminal's current width in columns; 80 if unknown. Queried in each call, to
  /// follow resizing.
  int width() const;
  /// Returns the width at which lines for people are wrapped; in a file or pipe 0, which means
  /// unlimited.
  int line_width() const { return is_terminal_ ? width() : 0; }
  std::string styled(Style style, std::string_view text) const;

  /// Writes and flushes immediately; returns false if the reader has closed the stream.
  bool write(std::string_view text);
  /// Writes lines; on a terminal those of stderr, which are sentences, are wrapped at spaces.
  bool line(std::string_view text);

 private:
  std::FILE* file_;
  bool is_terminal_;
  bool wraps_;
  bool colour_;
  bool utf8_;
};

std::string paint(bool colour, Style style, std::string_view text);

/// Wraps escaped text at spaces to lines of at most `width` columns. Lines after the first are
/// indented by `indent` spaces; the first line already has `used` columns. Returns the text
/// unchanged if fewer than 20 columns would remain.
std::string wrapped(std::string_view text, int width, int indent = 0, int used = 0);
/// Wraps each line of the text.
std::string wrapped_lines(std::string_view text, int width);
/// Returns the approximate width of UTF-8 text in columns: counts code points, combining marks and
/// the escape sequences of paint() as 0 and wide ones as 2.
int display_width(std::string_view text);

}  // namespace trainyard::cli
