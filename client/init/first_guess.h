// client/init/first_guess.h: chooses a network and a recipe to start with, from what is known about
// the data before training. A pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/tensor/shape.h"

namespace trainyard::init {

struct DataFacts {
  enum class Kind : uint8_t { kTable, kImages, kTextRows, kText } kind = Kind::kTable;
  int64_t rows = 0;     // rows for training and validation; for kText the number of tokens
  int64_t classes = 0;  // 0: the target is a number (or the next token)
  int64_t inputs = 0;   // for a table: one per numeric column and one per category
  Shape image = {};     // [C, H, W]
};

struct FirstGuess {
  std::string model;        // as a spec writes it: "mlp: {hidden: [64, 64], dropout: 0.1}"
  std::string model_words;  // for people: "two hidden layers of 64 units"
  int64_t epochs = 0;       // one of `epochs` and `steps` is 0
  int64_t steps = 0;
  int64_t batch_size = 0;
  bool drop_last = true;     // Recipe.drop_last
  double learning_rate = 0;  // of AdamW
  double weight_decay = 0;
  bool decays_matrices = false;  // only matrices decay, not biases, normalization and embeddings
  // The number of warm-up steps before the cosine schedule. 0 if the recipe has epochs, because the
  // file must stay valid if a user lowers them.
  int64_t warmup_steps = 0;
  double ema_decay = 0;  // decay of the moving average of the weights; 0: no average
  double validation_split = 0;
  std::string metric;    // the metric that decides which model is kept, and when to stop early
  int64_t patience = 0;  // number of evaluations
  int64_t context_length = 0;                  // only for kText
  int64_t evaluate_every_steps = 0;            // 0: after each epoch
  double clip_norm = 0;                        // 0: no clipping
  std::vector<std::string> augmentation = {};  // as a spec writes them: "random_horizontal_flip:"
};

FirstGuess first_guess(const DataFacts& facts);

/// Returns the side to which images are resized; `side` is the median length of their shorter
/// sides.
int64_t guess_image_side(int64_t side);

}  // namespace trainyard::init
