// client/cli/reason_notes.h: the reasons of a table's rows, below it, where they do not fit into a
// column of the terminal.
#pragma once

#include <string>
#include <vector>

namespace trainyard::cli {

class ReasonNotes {
 public:
  /// Adds a row's reason; an empty one is ignored.
  void add(const std::string& name, const std::string& reason);
  bool empty() const { return notes_.empty(); }
  /// Returns a paragraph for each reason, with the rows that have it: "a, b and 58 more: Waits for
  /// ...". Texts are escaped, and wrapped to `width` columns.
  std::string render(int width) const;

 private:
  struct Note {
    std::string reason;
    std::vector<std::string> names;
  };
  std::vector<Note> notes_;
};

}  // namespace trainyard::cli
