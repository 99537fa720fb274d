// tests/bench/process_facts.h: the resources that this process has used.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace trainyard {

/// Returns the CPU seconds of all threads together.
inline double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Returns the number after a word in a file of /proc; 0 if the word does not occur.
inline int64_t number_in(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string word;
  int64_t value = 0;
  while (in >> word) {
    if (word == key && in >> value) return value;
  }
  return 0;
}
/// Returns the bytes written to files that the disk has to store.
inline int64_t written_bytes() { return number_in("/proc/self/io", "write_bytes:"); }

}  // namespace trainyard
