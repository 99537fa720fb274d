// client/cli/transfer_line.h: a terminal line that shows the progress of a transfer.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "client/cli/terminal.h"

namespace trainyard::cli {

/// The line is redrawn at most 10 times a second, and removed by the destructor. Writes nothing
/// unless `terminal` is a terminal.
class TransferLine {
 public:
  explicit TransferLine(Terminal& terminal) : terminal_(terminal) {}
  ~TransferLine();
  TransferLine(const TransferLine&) = delete;
  TransferLine& operator=(const TransferLine&) = delete;

  bool is_seen() const { return terminal_.is_terminal(); }
  /// Shows "uploading digits.csv  37% of 12 MiB".
  void show(const std::string& what, int64_t done_bytes, int64_t total_bytes);
  /// Draws the text without waiting for the next redraw time.
  void write(const std::string& text);

 private:
  Terminal& terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace trainyard::cli
