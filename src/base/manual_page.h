// src/base/manual_page.h: a page for man(1), written in the macros of man(7). Text is escaped, so
// that it shows as it was given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

class ManualPage {
 public:
  /// `section` is 1 for commands and 8 for daemons; `name` is what people type after "man".
  ManualPage(std::string_view name, int section, std::string_view summary);

  void heading(std::string_view text);
  /// Empty lines of `text` separate paragraphs.
  void paragraph(std::string_view text);
  /// Lines as they are, in a font for code.
  void code(const std::vector<std::string>& lines);

  struct Word {
    std::string text;
    enum Font { kPlain, kBold, kItalic } font = kPlain;
  };
  /// A line of its own in several fonts, such as a synopsis.
  void line(const std::vector<Word>& words);
  /// A term and, indented below it, what it means.
  void item(const std::vector<Word>& term, std::string_view meaning);

  const std::string& source() const { return source_; }

 private:
  void fill(std::string_view text);
  void begin_paragraph();

  std::string source_;
  bool after_heading_ = false;  // where a paragraph macro would be one too many
};

}  // namespace trainyard
