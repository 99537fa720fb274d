#include "src/data/load/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "src/base/check.h"
#include "src/base/philox.h"
#include "src/data/class_draw.h"

namespace trainyard {
namespace {

constexpr int64_t kContextDefault = 1024;

/// A set of numbers in [0, size), in which the least one that is not below a given number is found
/// quickly.
class NumberSet {
 public:
  explicit NumberSet(int64_t size) : words_(static_cast<size_t>(size) / 64 + 1) {}
  void insert(int64_t x) { words_[word(x)] |= bit(x); }
  void erase(int64_t x) { words_[word(x)] &= ~bit(x); }
  /// Returns -1 if there is none.
  int64_t least_from(int64_t x) const {
    uint64_t masked = words_[word(x)] & ~(bit(x) - 1);
    for (size_t w = word(x);; masked = words_[w]) {
      if (masked != 0) return static_cast<int64_t>(w) * 64 + std::countr_zero(masked);
      if (++w == words_.size()) return -1;
    }
  }

 private:
  static size_t word(int64_t x) { return static_cast<size_t>(x / 64); }
  static uint64_t bit(int64_t x) { return uint64_t{1} << (x % 64); }
  std::vector<uint64_t> words_;
};

/// Chooses rows for documents of falling length, one after the other.
class BestFit {
 public:
  explicit BestFit(int64_t context_length)
      : context_(context_length),
        with_room_(context_length + 1),
        rows_by_room_(static_cast<size_t>(context_length) + 1) {}
  /// Returns the row of the next document, of at most context_length tokens.
  int64_t place(int64_t length) {
    const int64_t room = with_room_.least_from(length);
    if (room < 0) {
      keep(rows_, context_ - length);
      return rows_++;
    }
    std::vector<int64_t>& rows = rows_by_room_[static_cast<size_t>(room)];
    const int64_t row = rows.back();
    rows.pop_back();
    if (rows.empty()) with_room_.erase(room);
    keep(row, room - length);
    return row;
  }
  int64_t rows() const { return rows_; }

 private:
  void keep(int64_t row, int64_t room) {
    if (room == 0) return;
    rows_by_room_[static_cast<size_t>(room)].push_back(row);
    with_room_.insert(room);
  }

  const int64_t context_;
  NumberSet with_room_;
  std::vector<std::vector<int64_t>> rows_by_room_;
  int64_t rows_ = 0;
};

/// Returns for each document whether it is held out. Documents are in the order of their lengths,
/// which planning also knows, so that both hold out the same lengths.
std::vector<bool> held_out_by_length(int64_t documents, const SplitRule& rule) {
  if (rule.folds > 0) {
    return draw_fold_by_class(std::vector<int32_t>(static_cast<size_t>(documents)), rule.folds,
                              rule.fold - 1, {rule.seed, "split"});
  }
  std::vector<bool> held(static_cast<size_t>(documents));
  for (const int64_t i : split_rows(documents, rule.share, rule.seed).validation) {
    held[static_cast<size_t>(i)] = true;
  }
  return held;
}

int64_t length_of(std::span<const int64_t> starts, int64_t document) {
  const auto at = static_cast<size_t>(document);
  return starts[at + 1] - starts[at];
}

}  // namespace

int64_t default_context_length(const DocumentsSchema& documents) {
  return std::clamp<int64_t>(std::max(documents.train.longest(), documents.test.longest()), 2,
                             kContextDefault);
}

int64_t count_packed_rows(const std::map<int64_t, int64_t>& lengths, int64_t context_length,
                          bool packs) {
  BestFit fit(context_length);
  int64_t documents = 0;
  for (auto it = lengths.rbegin(); it != lengths.rend(); ++it) {
    const auto& [length, count] = *it;
    documents += count;
    if (!packs) continue;
    for (int64_t i = 0; i < count; ++i) (void)fit.place(std::min(length, context_length));
  }
  return packs ? fit.rows() : documents;
}

DocumentRows count_document_rows(const DatasetSchema& schema, int64_t context_length,
                                 const SplitRule& rule) {
  TRAINYARD_CHECK(schema.documents.has_value(), "rows of documents");
  DocumentRows rows;
  const auto count = [&](const std::map<int64_t, int64_t>& lengths) {
    return count_packed_rows(lengths, context_length, rule.packs);
  };
  const std::map<int64_t, int64_t>& all = schema.documents->train.lengths;
  std::map<int64_t, int64_t> train = all, validation;
  if (rule.share > 0 || rule.folds > 0) {
    const std::vector<bool> held = held_out_by_length(schema.train_rows, rule);
    train.clear();
    size_t document = 0;
    for (const auto& [length, documents] : all) {
      for (int64_t i = 0; i < documents; ++i) ++(held[document++] ? validation : train)[length];
    }
  }
  for (const auto& [length, documents] : all) {
    if (length <= context_length) continue;
    rows.cut_documents += documents;
    rows.cut_tokens += documents * (length - context_length);
  }
  for (const auto& [length, documents] : train) {
    rows.train_documents += documents;
    rows.train_tokens += documents * std::min(length, context_length);
  }
  rows.train = count(train);
  rows.validation = count(validation);
  rows.test = count(schema.documents->test.lengths);
  return rows;
}

int32_t padding_of(const TextSchema& text) {
  return text.padding_token >= 0 ? text.padding_token : std::max(text.end_token, 0);
}

PackedRows pack_documents(std::span<const int64_t> starts, std::span<const int64_t> documents,
                          int64_t context_length, bool packs, int32_t padding) {
  PackedRows packed;
  packed.context_length = context_length;
  packed.padding = padding;
  std::vector<int64_t> row_of(documents.size());  // of each of `documents`
  BestFit fit(context_length);
  if (packs) {
    std::vector<size_t> order(documents.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(),
                             [&](size_t i) { return length_of(starts, documents[i]); });
    for (const size_t i : order) {
      row_of[i] = fit.place(std::min(length_of(starts, documents[i]), context_length));
    }
  } else {
    std::iota(row_of.begin(), row_of.end(), int64_t{0});
  }
  // Numbers the rows by their first documents.
  std::vector<int64_t> number(documents.size(), -1);
  int64_t rows = 0;
  for (int64_t& row : row_of) {
    int64_t& of_row = number[static_cast<size_t>(row)];
    if (of_row < 0) of_row = rows++;
    row = of_row;
  }
  packed.firsts.assign(static_cast<size_t>(rows) + 1, 0);
  for (const int64_t row : row_of) ++packed.firsts[static_cast<size_t>(row) + 1];
  std::partial_sum(packed.firsts.begin(), packed.firsts.end(), packed.firsts.begin());
  packed.documents.resize(documents.size());
  std::vector<int64_t> next(packed.firsts.begin(), packed.firsts.end() - 1);
  for (size_t i = 0; i < documents.size(); ++i) {
    packed.documents[static_cast<size_t>(next[static_cast<size_t>(row_of[i])]++)] = documents[i];
  }
  return packed;
}

Split split_documents(const DatasetSchema& schema, const Partition& train, int64_t context_length,
                      const SplitRule& rule) {
  std::vector<int64_t> by_length(static_cast<size_t>(train.rows));
  std::iota(by_length.begin(), by_length.end(), int64_t{0});
  std::ranges::stable_sort(by_length, {}, [&](int64_t i) { return length_of(train.starts, i); });
  const std::vector<bool> held = held_out_by_length(train.rows, rule);
  std::vector<bool> held_out(by_length.size());
  for (size_t i = 0; i < held.size(); ++i) held_out[static_cast<size_t>(by_length[i])] = held[i];
  std::vector<int64_t> trained, validation;
  for (int64_t i = 0; i < train.rows; ++i) {
    (held_out[static_cast<size_t>(i)] ? validation : trained).push_back(i);
  }
  const int32_t padding = padding_of(schema.text);
  auto packed = std::make_shared<PackedRows>(
      pack_documents(train.starts, trained, context_length, rule.packs, padding));
  const int64_t train_rows = packed->rows();
  const PackedRows others =
      pack_documents(train.starts, validation, context_length, rule.packs, padding);
  for (int64_t row = 0; row < others.rows(); ++row) {
    const std::span<const int64_t> documents = others.documents_of(row);
    packed->documents.insert(packed->documents.end(), documents.begin(), documents.end());
    packed->firsts.push_back(std::ssize(packed->documents));
  }
  Split split;
  split.train.resize(static_cast<size_t>(train_rows));
  split.validation.resize(static_cast<size_t>(others.rows()));
  std::iota(split.train.begin(), split.train.end(), int64_t{0});
  std::iota(split.validation.begin(), split.validation.end(), train_rows);
  split.packed = std::move(packed);
  return split;
}

std::shared_ptr<const PackedRows> pack_all(const DatasetSchema& schema, const Partition& partition,
                                           int64_t context_length, bool packs) {
  std::vector<int64_t> documents(static_cast<size_t>(partition.rows));
  std::iota(documents.begin(), documents.end(), int64_t{0});
  return std::make_shared<const PackedRows>(
      pack_documents(partition.starts, documents, context_length, packs, padding_of(schema.text)));
}

void copy_packed_row(const Partition& partition, int64_t row, std::span<int32_t> tokens,
                     std::span<int32_t> positions, std::span<int32_t> targets) {
  const PackedRows& packed = *partition.packed;
  size_t at = 0;
  for (const int64_t document : packed.documents_of(row)) {
    const auto first = static_cast<size_t>(partition.starts[static_cast<size_t>(document)]);
    const auto length =
        static_cast<size_t>(std::min(length_of(partition.starts, document), packed.context_length));
    for (size_t i = 0; i < length; ++i, ++at) {
      tokens[at] = partition.tokens[first + i];
      positions[at] = static_cast<int32_t>(i);
      const bool counts = i + 1 < length && partition.counted[first + i + 1] != 0;
      targets[at] = counts ? partition.tokens[first + i + 1] : -1;
    }
  }
  std::ranges::fill(tokens.subspan(at), packed.padding);
  std::ranges::fill(positions.subspan(at), 0);
  std::ranges::fill(targets.subspan(at), -1);
}

}  // namespace trainyard
