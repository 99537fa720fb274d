// src/data/tokenizers/word_cache.h: the tokens of words that occurred before. Most of a text is a
// few thousand words again and again.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "src/data/tokenizers/token_model.h"

namespace trainyard {

/// Thread-safe without locks: an entry is written once and never changed or removed. When the
/// places of a word are taken, it is not stored.
class WordCache {
 public:
  static constexpr size_t kWordBytesMax = 48;

  WordCache();
  ~WordCache();
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  /// Returns null if the word is not stored.
  const PieceTokens* find(std::string_view word) const;
  /// Stores the tokens that `tokens` has from `first` on; their begins are relative to `base`.
  void store(std::string_view word, const PieceTokens& tokens, size_t first, size_t base);

 private:
  struct Entry;
  static constexpr size_t kPlaces = size_t{1} << 16, kTries = 4;
  static size_t place_of(std::string_view word);

  std::unique_ptr<std::atomic<Entry*>[]> places_;
};

}  // namespace trainyard
