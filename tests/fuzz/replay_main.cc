// Runs a target on the inputs in a folder: whole, cut short and randomly changed. This test needs
// no fuzzer and guards against regressions of what a fuzzer found. The changes are seeded by the
// inputs' names, so that a run is repeatable.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

constexpr size_t kCuts = 16;
constexpr size_t kChangedCopies = 200;

void run(const std::string& bytes) {
  // An exactly sized copy, so that a read past the end leaves the allocation.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  (void)LLVMFuzzerTestOneInput(input.data(), input.size());
}

/// Makes one of libFuzzer's mutations: changes a bit, a byte or a number, or inserts, deletes or
/// repeats bytes.
void change(std::string& bytes, std::mt19937_64& random) {
  constexpr std::array<uint32_t, 8> kNumbers = {0,          1,          0x7F,       0xFF,
                                                0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000};
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const size_t at = below(bytes.size() + 1);
  const size_t rest = bytes.size() - at;
  const size_t length = std::min(rest, 1 + below(16));
  switch (below(6)) {
    case 0:
      if (rest > 0) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      break;
    case 1:
      if (rest > 0) bytes[at] = static_cast<char>(below(256));
      break;
    case 2: {
      const uint32_t number = kNumbers[below(kNumbers.size())];
      const bool reversed = below(2) == 1;
      for (size_t i = 0; i < std::min<size_t>(rest, 4); ++i) {
        bytes[at + i] = static_cast<char>(number >> 8 * (reversed ? 3 - i : i));
      }
      break;
    }
    case 3:
      bytes.erase(at, length);
      break;
    case 4:
      bytes.insert(at, std::string(1 + below(4), static_cast<char>(below(256))));
      break;
    default:
      bytes.insert(below(bytes.size() + 1), bytes.substr(at, length));
  }
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
    std::fflush(stdout);  // so that the last line names an input that crashes the program
    run(bytes);
    for (size_t k = 0; k < kCuts; ++k) run(bytes.substr(0, bytes.size() * k / kCuts));
    const std::string name = file.filename().string();
    std::seed_seq seed(name.begin(), name.end());
    std::mt19937_64 random(seed);
    for (size_t k = 0; k < kChangedCopies; ++k) {
      std::string copy = bytes;
      for (size_t changes = 1 + k % 4; changes > 0; --changes) change(copy, random);
      run(copy);
    }
  }
  return files.empty() ? 1 : 0;
}
