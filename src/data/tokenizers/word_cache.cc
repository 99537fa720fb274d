#include "src/data/tokenizers/word_cache.h"

#include <functional>

namespace trainyard {

struct WordCache::Entry {
  std::string word;
  PieceTokens tokens;
};

WordCache::WordCache() : places_(new std::atomic<Entry*>[kPlaces]()) {}
WordCache::~WordCache() {
  for (size_t i = 0; i < kPlaces; ++i) delete places_[i].load();
}

size_t WordCache::place_of(std::string_view word) { return std::hash<std::string_view>{}(word); }

const PieceTokens* WordCache::find(std::string_view word) const {
  const size_t place = place_of(word);
  for (size_t i = 0; i < kTries; ++i) {
    const Entry* entry = places_[(place + i) % kPlaces].load(std::memory_order_acquire);
    if (entry == nullptr) return nullptr;
    if (entry->word == word) return &entry->tokens;
  }
  return nullptr;
}

void WordCache::store(std::string_view word, const PieceTokens& tokens, size_t first, size_t base) {
  if (word.size() > kWordBytesMax) return;
  auto entry = std::make_unique<Entry>();
  entry->word = word;
  for (size_t i = first; i < tokens.ids.size(); ++i) {
    entry->tokens.add(tokens.ids[i], tokens.begins[i] - base);
  }
  const size_t place = place_of(word);
  for (size_t i = 0; i < kTries; ++i) {
    Entry* expected = nullptr;
    if (places_[(place + i) % kPlaces].compare_exchange_strong(expected, entry.get(),
                                                               std::memory_order_acq_rel)) {
      (void)entry.release();
      return;
    }
    if (expected->word == word) return;
  }
}

}  // namespace trainyard
