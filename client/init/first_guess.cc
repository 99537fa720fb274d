#include "client/init/first_guess.h"

#include <algorithm>
#include <cmath>

namespace trainyard::init {
namespace {

int64_t power_of_two_below(int64_t value) {
  int64_t power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}

/// Returns the validation split: `usual`, or more for a small table, so that at least ten rows are
/// held out (but at most kShareMax of all rows).
double split_of(int64_t rows, double usual) {
  constexpr double kHeldOutMin = 10, kShareMax = 0.3;
  const double share = kHeldOutMin / static_cast<double>(std::max<int64_t>(1, rows));
  return std::max(usual, std::min(std::round(share * 100) / 100, kShareMax));
}

/// Returns the number of rows left for training, computed as a job splits them.
int64_t training_rows(const DataFacts& facts, const FirstGuess& guess) {
  const double held_out = static_cast<double>(facts.rows) * guess.validation_split;
  return std::max<int64_t>(1, facts.rows - std::llround(held_out));
}

/// Sets a batch size with which an epoch has some hundred batches, if there are enough rows, and
/// that never exceeds the number of rows.
void set_batch(const DataFacts& facts, int64_t least, int64_t most, FirstGuess& guess) {
  const int64_t rows = training_rows(facts, guess);
  guess.batch_size = std::min(std::clamp(power_of_two_below(rows / 100 + 1), least, most),
                              power_of_two_below(rows));
}

int64_t whole_batches(const DataFacts& facts, const FirstGuess& guess) {
  return std::max<int64_t>(1, training_rows(facts, guess) / guess.batch_size);
}

struct Bounds {
  int64_t least, most;
};

/// Sets the number of epochs that makes about `steps` steps, within `bounds`.
void set_epochs(const DataFacts& facts, int64_t steps, Bounds bounds, FirstGuess& guess) {
  const auto epochs =
      std::llround(static_cast<double>(steps) / static_cast<double>(whole_batches(facts, guess)));
  guess.epochs = std::clamp<int64_t>(epochs, bounds.least, bounds.most);
}

/// The values were measured against scikit-learn on held-out splits of 19 data sets.
void guess_table(const DataFacts& facts, FirstGuess& guess) {
  // With few rows: a small network and a high rate, with more dropout against overfitting.
  const bool small = facts.rows < 2000;
  guess.model =
      small ? "mlp: {hidden: [128], dropout: 0.2}" : "mlp: {hidden: [256, 256], dropout: 0.1}";
  guess.model_words = small ? "a hidden layer of 128 units" : "two hidden layers of 256 units";
  guess.learning_rate = small ? 0.005 : 0.002;
  guess.weight_decay = 0.2;
  guess.decays_matrices = true;
  guess.ema_decay = 0.99;
  guess.validation_split = split_of(facts.rows, facts.rows < 200 ? 0.1 : 0.15);
  const int64_t rows = training_rows(facts, guess);
  guess.batch_size = 16;
  while (guess.batch_size < 256 && guess.batch_size * 40 < rows) guess.batch_size *= 2;
  guess.batch_size = std::min(guess.batch_size, rows);
  set_epochs(facts, small ? 1500 : 6000, {10, 300}, guess);
  guess.patience = std::max<int64_t>(5, guess.epochs / 5);
}

void guess_images(const DataFacts& facts, FirstGuess& guess) {
  const int64_t side = std::min(facts.image[1], facts.image[2]);
  guess.weight_decay = 0.05;
  guess.epochs = facts.rows < 10'000 ? 30 : 15;
  guess.patience = std::max<int64_t>(5, guess.epochs / 4);
  guess.validation_split = split_of(facts.rows, facts.rows < 10'000 ? 0.15 : 0.1);
  set_batch(facts, 32, 64, guess);
  if (side < 8) {
    guess.model = "mlp: {hidden: [128, 64], dropout: 0.1}";
    guess.model_words = "two hidden layers; the images are too small for convolutions";
    guess.learning_rate = 0.001;
  } else if (facts.image[0] == 1 && side <= 32) {
    guess.model = "lenet5:";
    guess.model_words = "LeNet-5, a small convolutional network";
    guess.learning_rate = 0.003;
    guess.ema_decay = 0.99;
  } else {
    guess.model = "resnet18: {width: 16}";
    guess.model_words = "a ResNet-18 with a quarter of its width, which a CPU can train";
    guess.learning_rate = 0.001;
    if (side >= 16) {
      guess.augmentation = {"random_crop: {padding: " + std::to_string(side / 8) + "}",
                            "random_horizontal_flip:"};
    }
  }
}

/// The values were measured against TF-IDF with logistic regression. The weight decay applies to
/// the embeddings too, since most words occur only a few times.
void guess_text_rows(const DataFacts& facts, FirstGuess& guess) {
  guess.model = "embedding_bag_classifier: {embedding_dim: 64, dropout: 0.3}";
  guess.model_words = "a bag of words: the mean of their learned vectors";
  guess.learning_rate = 0.02;
  guess.weight_decay = 0.7;
  guess.validation_split = split_of(facts.rows, 0.1);
  guess.batch_size = std::min<int64_t>(32, training_rows(facts, guess));
  guess.epochs = facts.rows < 3000 ? 25 : 12;
  guess.patience = 5;
}

void guess_text(const DataFacts& facts, FirstGuess& guess) {
  // A short text gets fewer and shorter windows.
  guess.validation_split = 0.05;
  guess.context_length =
      std::clamp(power_of_two_below(facts.rows / 500 + 1), int64_t{8}, int64_t{64});
  guess.batch_size = 12;
  guess.model = facts.rows < 100'000 ? "gpt2: {n_layer: 2, n_head: 4, n_embd: 64, dropout: 0.1}"
                                     : "gpt2: {n_layer: 4, n_head: 4, n_embd: 128, dropout: 0.0}";
  guess.model_words = facts.rows < 100'000 ? "a GPT of 2 layers" : "a GPT of 4 layers";
  guess.learning_rate = 0.001;
  guess.weight_decay = 0.1;
  guess.steps = facts.rows < 100'000 ? 500 : 2000;
  guess.warmup_steps = guess.steps / 20;
  guess.evaluate_every_steps = guess.steps / 20;
  guess.clip_norm = 1;
  guess.patience = 5;
}

/// Returns whether an epoch may leave out its last incomplete batch: only if that is at most a few
/// percent of the rows.
bool drops_last(const DataFacts& facts, const FirstGuess& guess) {
  constexpr double kLeftOutMax = 0.03;
  const int64_t length = std::max<int64_t>(1, guess.context_length);
  const int64_t rows = std::max<int64_t>(1, training_rows(facts, guess) / length);
  const int64_t left_out = rows % guess.batch_size;
  return static_cast<double>(left_out) <= kLeftOutMax * static_cast<double>(rows);
}

}  // namespace

int64_t guess_image_side(int64_t side) {
  // larger images take hours on a CPU; the file says how to change the size
  constexpr int64_t kSideMax = 64;
  return side >= kSideMax ? kSideMax : side >= 32 ? 32 : std::max<int64_t>(8, side);
}

FirstGuess first_guess(const DataFacts& facts) {
  FirstGuess guess;
  guess.metric = "val/loss";
  switch (facts.kind) {
    case DataFacts::Kind::kTable:
      guess_table(facts, guess);
      break;
    case DataFacts::Kind::kImages:
      guess_images(facts, guess);
      break;
    case DataFacts::Kind::kTextRows:
      guess_text_rows(facts, guess);
      break;
    case DataFacts::Kind::kText:
      guess_text(facts, guess);
      break;
  }
  guess.drop_last = drops_last(facts, guess);
  return guess;
}

}  // namespace trainyard::init
