// src/data/text/subword_training.h: what a subword tokenizer learns, from a text of any size.
//
// A sentence is a line, or 4096 bytes of one. At most kSentenceBytesMax of sentences are kept:
// beyond that every second one is dropped and only every second one is added, and so on, so that
// the kept ones are spread evenly over the text, depend only on the text, and are bounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/data/text/tokenizer.h"

namespace trainyard {

class SentenceSample {
 public:
  /// UTF-8. The end of `text` ends a sentence.
  void add(std::string_view text);
  /// Each ends with a line feed.
  const std::string& sentences() const { return kept_; }

 private:
  void add_sentence(std::string_view sentence);

  std::string kept_;
  uint64_t seen_ = 0;
  uint64_t stride_ = 1;
};

/// Runs trainyard-tokenizer, which is beside this program unless TRAINYARD_TOKENIZER_PROGRAM names
/// it, and returns its model: the same bytes for the same arguments. Refusals: DATASET_INVALID
/// naming `field`.vocabulary_size or `field`.tokenizer; FAILED_PRECONDITION/TOKENIZER_UNAVAILABLE
/// if the program is missing.
Result<std::string> train_subwords(TokenizerKind kind, const std::string& sentences,
                                   int64_t pieces_max, const std::string& field);

}  // namespace trainyard
