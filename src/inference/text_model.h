// src/inference/text_model.h: the scores of the next token of several texts.
//
//   kept     the keys and values of earlier tokens are kept, so that a step computes one token
//            (most models)
//   window   each step computes the last tokens anew, for models with layers that need all of
//            them, such as recurrent ones
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "src/artifact/model_artifact.h"
#include "src/base/result.h"
#include "src/planning/generation_programs.h"
#include "src/runtime/backend.h"

namespace trainyard {

/// Not thread-safe.
class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual int64_t rows() const = 0;
  /// Scores per text, one for each row of the model's head; maybe more than the tokenizer has
  /// tokens.
  virtual int64_t scores() const = 0;

  /// Begins with other texts. What has been computed for a text that begins alike is used again,
  /// without changing any result.
  virtual void restart() = 0;
  /// Computes the scores of the token after each text, of which there are rows(), none empty.
  /// Between two calls of restart() texts only grow. Of a text longer than the model sees, its last
  /// tokens count: all that fit at first, then at least half of them, so that a text that grows is
  /// not read anew for each token. CANCELLED after `stop`.
  virtual Status score(std::span<const std::vector<int32_t>> texts,
                       const std::stop_token& stop) = 0;
  /// Copies the scores of a text after score().
  virtual void read(int64_t row, std::span<float> scores) const = 0;
};

/// `capacity`: the tokens of a text that the model sees at most. `storage`: how weights are stored
/// (weight_storage.h). Errors: those of compile_generation() and find_weight().
Result<std::unique_ptr<TextModel>> open_kept_text_model(const LoadedModel& model, int64_t rows,
                                                        int64_t capacity,
                                                        const WeightStorage& storage,
                                                        Backend& backend);
/// Sees `context_length` tokens of the model's preprocessing.
Result<std::unique_ptr<TextModel>> open_window_text_model(const LoadedModel& model, int64_t rows,
                                                          Backend& backend);

}  // namespace trainyard
