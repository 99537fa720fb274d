#include "client/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace trainyard::cli {
namespace {

/// A decoded code point; length 0 if the bytes are not valid UTF-8.
struct CodePoint {
  uint32_t value = 0;
  size_t length = 0;
};
CodePoint decode(std::string_view s, size_t i) {
  const auto c = static_cast<unsigned char>(s[i]);
  if (c < 0x80) return {c, 1};
  const size_t length = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
  if (length == 0 || c >= 0xf5 || i + length > s.size()) return {};
  uint32_t value = c & (0x7fu >> length);
  for (size_t k = 1; k < length; ++k) {
    const auto next = static_cast<unsigned char>(s[i + k]);
    if ((next & 0xc0) != 0x80) return {};
    value = value << 6 | (next & 0x3f);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (overlong || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return {};
  return {value, length};
}

std::string_view code_of(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kDim:
      return "2";
    case Style::kBold:
      return "1";
    case Style::kGood:
      return "32";
    case Style::kBad:
      return "31";
    case Style::kBusy:
      return "36";
    case Style::kNotice:
      return "33";
  }
  return "";
}

}  // namespace

bool wants_colour(bool is_terminal, bool no_colour_flag, const client::Environment& env) {
  if (no_colour_flag || !env("TRAINYARD_NO_COLOR").empty()) return false;
  if (const std::string force = env("FORCE_COLOR"); !force.empty()) return force != "0";
  return is_terminal && env("NO_COLOR").empty() && env("TERM") != "dumb";
}

Terminal::Terminal(std::FILE* file, bool no_colour_flag, const client::Environment& env)
    : file_(file),
      is_terminal_(::isatty(::fileno(file)) == 1 && env("TERM") != "dumb"),
      wraps_(is_terminal_ && file == stderr) {
  colour_ = wants_colour(is_terminal_, no_colour_flag, env);
  std::string locale = env("LC_ALL");
  if (locale.empty()) locale = env("LC_CTYPE");
  if (locale.empty()) locale = env("LANG");
  std::transform(locale.begin(), locale.end(), locale.begin(), ::tolower);
  utf8_ = locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
}

int Terminal::width() const {
  winsize size{};
  if (::ioctl(::fileno(file_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string paint(bool colour, Style style, std::string_view text) {
  if (!colour || style == Style::kPlain) return std::string(text);
  return "\x1b[" + std::string(code_of(style)) + "m" + std::string(text) + "\x1b[0m";
}

std::string Terminal::styled(Style style, std::string_view text) const {
  return paint(colour_, style, text);
}

bool Terminal::write(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0;
}
bool Terminal::line(std::string_view text) {
  return write((wraps_ ? wrapped_lines(text, width()) : std::string(text)) + "\n");
}

std::string wrapped(std::string_view text, int width, int indent, int used) {
  constexpr int kLeastText = 20;
  if (width - indent < kLeastText) return std::string(text);
  std::string out;
  int column = used;
  bool begins = true;  // no word in this line yet
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    const int word_width = display_width(word);
    if (!begins && column + 1 + word_width > width) {
      out += "\n" + std::string(static_cast<size_t>(indent), ' ');
      column = indent;
      begins = true;
    }
    if (!begins) out += ' ';
    out += word;
    column += word_width + (begins ? 0 : 1);
    begins = false;
  }
  return out;
}

std::string wrapped_lines(std::string_view text, int width) {
  std::string out;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += wrapped(text.substr(0, end), width);
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

int display_width(std::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size() - 1) + 1;
      continue;
    }
    const CodePoint c = decode(text, i);
    const bool combining = c.value >= 0x300 && c.value < 0x370;
    const bool wide =
        (c.value >= 0x1100 && c.value < 0x1160) || (c.value >= 0x2e80 && c.value < 0xa4d0) ||
        (c.value >= 0xac00 && c.value < 0xd7a4) || (c.value >= 0xf900 && c.value < 0xfb00) ||
        (c.value >= 0xff00 && c.value < 0xff61) || (c.value >= 0x1f300 && c.value < 0x1fb00);
    width += combining ? 0 : wide ? 2 : 1;
    i += c.length == 0 ? 1 : c.length;
  }
  return width;
}

}  // namespace trainyard::cli
