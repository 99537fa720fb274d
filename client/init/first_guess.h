// client/init/first_guess.h: which network and recipe to begin with, by what is known of the data
// before anything is trained. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/tensor/shape.h"

namespace trainyard::init {

struct DataFacts {
  enum class Kind : uint8_t { kTable, kImages, kTextRows, kText } kind = Kind::kTable;
  int64_t rows = 0;     // that are there to train and to validate; of kText: tokens
  int64_t classes = 0;  // 0: the target is a number (or the next token)
  int64_t inputs = 0;   // of a table: numbers, and one for each category
  Shape image = {};     // [C, H, W]
};

struct FirstGuess {
  std::string model;        // as a spec writes it: "mlp: {hidden: [64, 64], dropout: 0.1}"
  std::string model_words;  // for people: "two hidden layers of 64 units"
  int64_t epochs = 0;       // one of these two, the other is 0
  int64_t steps = 0;
  int64_t batch_size = 0;
  bool drop_last = true;     // as the recipe's
  double learning_rate = 0;  // of adamw
  double weight_decay = 0;
  bool decays_matrices = false;  // alone: not biases, normalization and embeddings
  // Before the cosine. 0 where epochs count: a file whose epochs are lowered must stay valid.
  int64_t warmup_steps = 0;
  double ema_decay = 0;  // 0: no averages of the weights
  double validation_split = 0;
  std::string metric;                          // decides which model is kept, and when to stop
  int64_t patience = 0;                        // evaluations
  int64_t context_length = 0;                  // of kText
  int64_t evaluate_every_steps = 0;            // 0: each epoch
  double clip_norm = 0;                        // 0: not clipped
  std::vector<std::string> augmentation = {};  // "random_horizontal_flip:"
};

FirstGuess first_guess(const DataFacts& facts);

/// The side to which images are resized: `side` is the usual length of their shorter one.
int64_t guess_image_side(int64_t side);

}  // namespace trainyard::init
