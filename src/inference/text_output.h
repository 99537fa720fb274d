// src/inference/text_output.h: the text of generated tokens, as it may be shown.
//
//   bytes of tokens -> whole characters (Utf8Gate) -> up to a stop string (StopFilter) -> shown
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

/// Keeps back the bytes of a character until it is complete, since a model may generate a character
/// byte by byte. Bytes that cannot form a character become U+FFFD.
class Utf8Gate {
 public:
  /// If `shut` is false, all bytes pass unchanged and immediately.
  explicit Utf8Gate(bool shut) : shut_(shut) {}
  /// `last`: nothing follows, so that all bytes must pass.
  std::string pass(std::string_view bytes, bool last);

 private:
  bool shut_;
  std::string pending_;
};

/// Ends a text before the first of some strings, wherever tokens begin and end. Text that may be
/// the beginning of such a string is kept back.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> strings) : strings_(std::move(strings)) {}
  /// Returns the text that may be shown now. Nothing more may be added once has_stopped().
  std::string pass(std::string_view text, bool last);
  bool has_stopped() const { return stopped_; }

 private:
  std::vector<std::string> strings_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace trainyard
