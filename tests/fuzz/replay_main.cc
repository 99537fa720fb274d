// Runs a target on the inputs of a folder, whole and cut short: a test that needs no fuzzer. What a
// fuzzer has found once stays found.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

constexpr size_t kCuts = 16;

void run(const std::string& bytes) {
  // A copy of its own size, so that a read past the end is one past an allocation.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  (void)LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "expected one argument, a folder of inputs\n");
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry);
  std::ranges::sort(files);
  run("");
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    std::printf("%s, %zu bytes\n", file.filename().c_str(), bytes.size());
    std::fflush(stdout);  // the last line names the input that ended the program
    run(bytes);
    for (size_t k = 0; k < kCuts; ++k) run(bytes.substr(0, bytes.size() * k / kCuts));
  }
  return files.empty() ? 1 : 0;
}
