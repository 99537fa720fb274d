// src/data/documents/document_line.h: reads one line of JSON lines that contains a document for a
// language model.
//
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//   {"prompt": "...", "completion": "..."}
//   {"text": "..."}
//
// Other members are not read. A member that is null is missing.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/problems.h"
#include "src/data/tokenizers/chat_template.h"

namespace trainyard {

struct DocumentLine {
  std::optional<std::vector<Message>> messages;
  std::optional<std::string> prompt, completion, text;
};

/// Reads the object of a line. Adds all its problems to `problems`; `place` names the line. Adds
/// the names of members that are not read to `others`. Returns nullopt if the line has a problem.
/// `answers`: only answers count, so a document must have one.
std::optional<DocumentLine> read_document_line(std::string_view line, const std::string& place,
                                               bool answers, Problems& problems,
                                               std::set<std::string>& others);

}  // namespace trainyard
