// tests/docs/page_part.h: parts of pages that are made from tables of the program. A part is
// between
// "<!-- KIND: NAME -->" and "<!-- end of KIND -->". With TRAINYARD_UPDATE_GOLDEN=1 the tests write
// the parts instead of comparing them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "tests/support/source_path.h"

namespace trainyard::testing {

using Cells = std::vector<std::string>;

/// Returns a table in Markdown, without the line below its head, which is one of `lines`.
inline std::string table_text(const std::vector<Cells>& lines) {
  std::string text;
  for (const Cells& cells : lines) {
    text += "|";
    for (const std::string& cell : cells) text += cell.empty() ? " |" : " " + cell + " |";
    text += "\n";
  }
  return text;
}

struct PagePart {
  std::string page;  // "docs/job_spec.md"
  std::string kind;  // "fields"
  std::string name;
  std::string test;  // the test that compares it, for the message
};

/// Compares a part of a page with the text made from the program's tables, or replaces it.
inline void expect_page_part(const PagePart& part, const std::string& made) {
  const std::string path = source_path(part.page);
  constexpr int64_t kPageBytesMax = 1 << 20;
  const Result<std::string> content = read_file(path, kPageBytesMax);
  ASSERT_TRUE(content.ok()) << path << ": " << content.error().message;
  std::string text = *content;
  const std::string begin = "<!-- " + part.kind + ": " + part.name + " -->";
  const std::string end = "<!-- end of " + part.kind + " -->";
  const size_t from = text.find(begin + "\n");
  const size_t to = text.find("\n" + end, from);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos)
      << part.page << " has no part between '" << begin << "' and '" << end << "'";
  // Markdown recognizes a table only after an empty line.
  const std::string written = "\n" + made;
  const size_t first = from + begin.size() + 1;
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text.replace(first, to - first, written);
    return;
  }
  EXPECT_EQ(text.substr(first, to - first), written)
      << part.page << " differs from the rows of " << part.name
      << ". Rewrite the page with this command, and review the difference:\n"
         "  TRAINYARD_UPDATE_GOLDEN=1 ctest --preset release -R "
      << part.test;
}

}  // namespace trainyard::testing
