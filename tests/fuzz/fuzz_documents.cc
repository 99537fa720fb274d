// Fuzzes lines with documents for language models: chats, prompts with completions, texts.
#include "src/data/documents/document_line.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  Problems problems;
  std::set<std::string> others;
  const auto line = read_document_line(text_of(data, size), "data: line 1", true, problems, others);
  TRAINYARD_CHECK(line.has_value() == problems.empty(), "a line is read or has a problem");
  if (!line) return 0;
  const bool pair = line->prompt.has_value();
  TRAINYARD_CHECK(pair == line->completion.has_value(), "a prompt has a completion");
  TRAINYARD_CHECK(int{line->messages.has_value()} + int{pair} + int{line->text.has_value()} == 1,
                  "a line has one document");
  TRAINYARD_CHECK(!line->messages || line->messages->back().role == "assistant",
                  "a chat ends with an answer");
  return 0;
}
