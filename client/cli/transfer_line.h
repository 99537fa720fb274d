// client/cli/transfer_line.h: one line of a terminal that tells how far a transfer is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "client/cli/terminal.h"

namespace trainyard::cli {

/// Redrawn at most 10 times a second, and removed with the object. Nothing where nobody would see
/// it.
class TransferLine {
 public:
  explicit TransferLine(Terminal& terminal) : terminal_(terminal) {}
  ~TransferLine();
  TransferLine(const TransferLine&) = delete;
  TransferLine& operator=(const TransferLine&) = delete;

  bool is_seen() const { return terminal_.is_terminal(); }
  /// "uploading digits.csv  37% of 12 MiB".
  void show(const std::string& what, int64_t done_bytes, int64_t total_bytes);
  /// At once.
  void write(const std::string& text);

 private:
  Terminal& terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace trainyard::cli
