#include "src/base/manual_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace trainyard {
namespace {

// The date of the pages' text. It is not the date of the build, so that builds of the same source
// are identical.
constexpr std::string_view kDate = "2026-11-24";
constexpr size_t kColumns = 78;  // the width of the page's source

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '"':
        out += "\\(dq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// Escapes a leading period, which would begin a macro.
std::string as_text(std::string line) { return line.starts_with('.') ? "\\&" + line : line; }

std::string in_fonts(const std::vector<ManualPage::Word>& words) {
  std::string out;
  for (const ManualPage::Word& word : words) {
    const std::string text = escaped(word.text);
    if (word.font == ManualPage::Word::kPlain) {
      out += text;
    } else {
      out += (word.font == ManualPage::Word::kBold ? "\\fB" : "\\fI") + text + "\\fR";
    }
  }
  return as_text(out);
}

}  // namespace

ManualPage::ManualPage(std::string_view name, int section, std::string_view summary) {
  std::string title(name);
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  source_ = ".TH " + title + " " + std::to_string(section) + " " + std::string(kDate) +
            " \"Trainyard " TRAINYARD_VERSION "\"\n";
  heading("NAME");
  fill(std::string(name) + " - " + std::string(summary));
}

void ManualPage::heading(std::string_view text) {
  source_ += ".SH \"" + escaped(text) + "\"\n";
  after_heading_ = true;
}

void ManualPage::begin_paragraph() {
  if (!after_heading_) source_ += ".PP\n";
  after_heading_ = false;
}

void ManualPage::fill(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string line;
  for (std::string word; in >> word;) {
    word = escaped(word);
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      source_ += as_text(line) + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) source_ += as_text(line) + "\n";
}

void ManualPage::paragraph(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find("\n\n"), text.size());
    begin_paragraph();
    fill(text.substr(0, end));
    text.remove_prefix(std::min(end + 2, text.size()));
  }
}

void ManualPage::code(const std::vector<std::string>& lines) {
  begin_paragraph();
  source_ += ".EX\n";
  for (const std::string& line : lines) source_ += as_text(escaped(line)) + "\n";
  source_ += ".EE\n";
}

void ManualPage::line(const std::vector<Word>& words) {
  begin_paragraph();
  source_ += in_fonts(words) + "\n";
}

void ManualPage::item(const std::vector<Word>& term, std::string_view meaning) {
  source_ += ".TP\n" + in_fonts(term) + "\n";
  fill(meaning);
  after_heading_ = false;
}

}  // namespace trainyard
