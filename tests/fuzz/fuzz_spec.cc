// Job files, YAML and JSON. A comment in the first line is taken for a --set too.
#include "client/lib/spec_document.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  std::string_view text = text_of(data, size);
  std::string_view assignment;
  if (text.starts_with('#')) {  // "#recipe.steps=3\n", a comment for the reader itself
    const size_t end = text.find('\n');
    assignment = text.substr(1, end == text.npos ? end : end - 1);
  }
  auto document = client::SpecDocument::parse(text, "spec.yaml");
  if (!document.ok()) return 0;
  (void)document->locate(assignment);
  (void)document->set(assignment);
  (void)document->describe(document->locate(assignment));
  return 0;
}
