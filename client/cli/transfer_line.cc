#include "client/cli/transfer_line.h"

#include "src/base/text.h"

namespace trainyard::cli {

TransferLine::~TransferLine() {
  if (drawn_) terminal_.write("\r\x1b[K");
}

void TransferLine::show(const std::string& what, int64_t done_bytes, int64_t total_bytes) {
  if (!is_seen()) return;
  constexpr double kRedrawSeconds = 0.1;
  const auto now = std::chrono::steady_clock::now();
  const bool done = done_bytes == total_bytes;
  if (!done && std::chrono::duration<double>(now - last_).count() < kRedrawSeconds) return;
  last_ = now;
  const double share =
      total_bytes > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes) : 1;
  write(what + "  " + std::to_string(static_cast<int>(share * 100)) + "% of " +
        human_bytes(total_bytes));
}

void TransferLine::write(const std::string& text) {
  if (!is_seen()) return;
  drawn_ = true;
  terminal_.write("\r" + text + "\x1b[K");
}

}  // namespace trainyard::cli
