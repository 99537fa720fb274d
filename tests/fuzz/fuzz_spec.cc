// Fuzzes job files in YAML and JSON, read as the command line and the server do. A comment in the
// first line is also used as the argument of --set.
#include "proto/spec/read.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  std::string_view text = text_of(data, size);
  std::string_view assignment;
  if (text.starts_with('#')) {  // such as "#recipe.steps=3\n", which YAML ignores
    const size_t end = text.find('\n');
    assignment = text.substr(1, end == text.npos ? end : end - 1);
  }
  std::vector<spec::Problem> problems;
  spec::Document document = spec::Document::parse(text, "spec.yaml", problems);
  if (!problems.empty()) return 0;
  (void)spec::job_spec(spec::read_job(document, problems));
  (void)spec::read_dataset(document, problems);
  (void)spec::read_model(document, problems);
  (void)spec::read_array(document, problems);
  document.set(assignment, problems);
  (void)document.describe(document.locate(assignment));
  if (!problems.empty()) (void)document.to_error(problems);
  return 0;
}
