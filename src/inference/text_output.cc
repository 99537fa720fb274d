#include "src/inference/text_output.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/text.h"

namespace trainyard {
namespace {

/// Returns whether `bytes` begin a well-formed character that further bytes would complete.
bool may_become_a_character(std::string_view bytes) {
  for (const char second : {'\x80', '\x90', '\xa0'}) {
    std::string whole(bytes);
    while (whole.size() < 4) {
      whole += whole.size() == 1 ? second : '\x80';
      if (is_utf8(whole)) return true;
    }
  }
  return false;
}

/// Returns the length of the longest end of `text` that is a beginning of `string`, but not all of
/// it.
size_t begun(std::string_view text, std::string_view string) {
  for (size_t n = std::min(text.size(), string.size() - 1); n > 0; --n) {
    if (text.ends_with(string.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

std::string Utf8Gate::pass(std::string_view bytes, bool last) {
  if (!shut_) return std::string(bytes);
  pending_ += bytes;
  std::string text;
  while (const std::optional<size_t> bad = find_invalid_utf8(pending_)) {
    text.append(pending_, 0, *bad);
    pending_.erase(0, *bad);
    if (!last && may_become_a_character(pending_)) return text;
    append_utf8(text, U'\ufffd');
    pending_.erase(0, 1);
  }
  return text + std::exchange(pending_, {});
}

std::string StopFilter::pass(std::string_view text, bool last) {
  pending_ += text;
  size_t end = std::string::npos;
  for (const std::string& s : strings_) end = std::min(end, pending_.find(s));
  if (end != std::string::npos) {
    stopped_ = true;
    pending_.resize(end);
    return std::exchange(pending_, {});
  }
  size_t kept_back = 0;
  if (!last) {
    for (const std::string& s : strings_) kept_back = std::max(kept_back, begun(pending_, s));
  }
  const std::string shown = pending_.substr(0, pending_.size() - kept_back);
  pending_.erase(0, shown.size());
  return shown;
}

}  // namespace trainyard
