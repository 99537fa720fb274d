// tests/fuzz/fuzz.h: the function that every target defines. libFuzzer calls it with generated
// inputs, replay_main.cc with those in corpus/. It must return for any bytes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/check.h"
#include "src/base/handle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trainyard {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A file in memory, for code that opens files by path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(::memfd_create("input", 0)) {
    TRAINYARD_CHECK(fd_ && ::write(fd_.get(), data, size) == static_cast<ssize_t>(size),
                    "a file in memory");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

}  // namespace trainyard
