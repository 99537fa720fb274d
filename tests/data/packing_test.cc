// The tests fail if planning counts other rows than a run has, a document is lost, repeated or torn
// apart, rows are longer than the context, folds overlap, or a target is not the document's next
// token that counts.
#include "src/data/load/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "src/base/philox.h"
#include "src/data/load/loader.h"
#include "src/data/statistics.h"
#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

using Tokens = std::vector<int32_t>;

/// Documents in memory, whose tokens are numbered and whose last half counts.
struct Documents {
  explicit Documents(const std::vector<int64_t>& lengths) {
    for (const int64_t length : lengths) {
      for (int64_t i = 0; i < length; ++i) {
        tokens.push_back(static_cast<int32_t>(tokens.size() % 200));
        counted.push_back(i > 0 && 2 * i >= length ? 1 : 0);
      }
      starts.push_back(std::ssize(tokens));
      ++counts.lengths[length];
    }
    counts.counted = std::accumulate(counted.begin(), counted.end(), int64_t{0});
    schema.kind = DatasetSchema::Kind::kText;
    schema.text.tokenizer = TokenizerKind::kByte;
    schema.target.kind = TargetSchema::Kind::kNextToken;
    schema.documents = DocumentsSchema{counts, {}};
    schema.train_rows = std::ssize(lengths);
  }
  Partition partition() const {
    Partition p;
    p.rows = schema.train_rows;
    p.tokens = tokens;
    p.counted = counted;
    p.starts = starts;
    return p;
  }
  std::vector<int64_t> all() const {
    std::vector<int64_t> documents(static_cast<size_t>(schema.train_rows));
    std::iota(documents.begin(), documents.end(), int64_t{0});
    return documents;
  }

  Tokens tokens;
  std::vector<uint8_t> counted;
  std::vector<int64_t> starts = {0};
  DocumentCounts counts;
  DatasetSchema schema;
};

std::vector<int64_t> random_lengths(uint64_t seed, size_t count, int64_t most) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t draw = math::philox_u32(seed, stream_of("lengths"), 0, i);
    lengths.push_back(1 + static_cast<int64_t>(draw) % most);
  }
  return lengths;
}

int64_t length_of_document(const Documents& d, int64_t document) {
  const auto at = static_cast<size_t>(document);
  return d.starts[at + 1] - d.starts[at];
}

TEST(Packing, EachDocumentIsInOneRowThatHoldsItWhole) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Documents d(random_lengths(seed, 400, 90));
    for (const int64_t context : {2, 40, 63, 64, 65, 128}) {
      const PackedRows rows = pack_documents(d.starts, d.all(), context, true, 0);
      EXPECT_EQ(rows.rows(), count_packed_rows(d.counts.lengths, context, true));
      std::set<int64_t> seen;
      int64_t first_before = -1;
      for (int64_t row = 0; row < rows.rows(); ++row) {
        int64_t places = 0;
        const std::span<const int64_t> documents = rows.documents_of(row);
        ASSERT_FALSE(documents.empty());
        EXPECT_TRUE(std::ranges::is_sorted(documents));
        EXPECT_GT(documents.front(), first_before);
        first_before = documents.front();
        for (const int64_t document : documents) {
          EXPECT_TRUE(seen.insert(document).second);
          places += std::min(length_of_document(d, document), context);
        }
        EXPECT_LE(places, context);
      }
      EXPECT_EQ(seen.size(), 400u);
    }
  }
}

TEST(Packing, TheRowWithTheLeastSufficientRoomTakesADocument) {
  // In falling order: 7, 6, 3, 3, 2, 1. 7 takes one 3, 6 the other, 2 needs a row of its own, and 1
  // goes to 6 + 3, which has one place left.
  const Documents d({3, 7, 1, 6, 2, 3});
  const PackedRows rows = pack_documents(d.starts, d.all(), 10, true, 0);
  ASSERT_EQ(rows.rows(), 3);
  EXPECT_EQ(copy(rows.documents_of(0)), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(copy(rows.documents_of(1)), (std::vector<int64_t>{2, 3, 5}));
  EXPECT_EQ(copy(rows.documents_of(2)), (std::vector<int64_t>{4}));
  // Few places stay empty.
  const Documents many(random_lengths(7, 2000, 30));
  const int64_t least = (many.counts.tokens() + 63) / 64;
  EXPECT_LE(count_packed_rows(many.counts.lengths, 64, true), least + 2);
}

TEST(Packing, WithoutItEachDocumentHasARow) {
  const Documents d({3, 7, 1});
  EXPECT_EQ(count_packed_rows(d.counts.lengths, 4, false), 3);
  const PackedRows rows = pack_documents(d.starts, d.all(), 4, false, 0);
  ASSERT_EQ(rows.rows(), 3);
  for (int64_t row = 0; row < 3; ++row) EXPECT_EQ(rows.documents_of(row)[0], row);
}

TEST(Packing, PlanningCountsTheRowsOfASplit) {
  const Documents d(random_lengths(5, 301, 50));
  const auto check = [&](const SplitRule& rule) {
    const DocumentRows planned = count_document_rows(d.schema, 48, rule);
    const Split split = split_documents(d.schema, d.partition(), 48, rule);
    EXPECT_EQ(planned.train, std::ssize(split.train));
    EXPECT_EQ(planned.validation, std::ssize(split.validation));
    EXPECT_EQ(split.packed->rows(), planned.train + planned.validation);
    std::set<int64_t> held_out;
    for (const int64_t row : split.validation) {
      for (const int64_t document : split.packed->documents_of(row)) held_out.insert(document);
    }
    int64_t trained = 0, tokens = 0;
    for (const int64_t row : split.train) {
      for (const int64_t document : split.packed->documents_of(row)) {
        EXPECT_FALSE(held_out.contains(document));
        ++trained;
        tokens += std::min<int64_t>(length_of_document(d, document), 48);
      }
    }
    EXPECT_EQ(trained, planned.train_documents);
    EXPECT_EQ(tokens, planned.train_tokens);
    EXPECT_EQ(trained + std::ssize(held_out), 301);
    return held_out;
  };
  for (const bool packs : {true, false}) {
    EXPECT_TRUE(check({.share = 0, .packs = packs}).empty());
    EXPECT_EQ(check({.share = 0.2, .seed = 3, .packs = packs}).size(), 60u);
    EXPECT_NE(check({.share = 0.2, .seed = 3}), check({.share = 0.2, .seed = 4}));
    std::set<int64_t> all;
    for (int64_t fold = 1; fold <= 5; ++fold) {
      for (const int64_t document : check({.folds = 5, .fold = fold, .packs = packs})) {
        EXPECT_TRUE(all.insert(document).second);
      }
    }
    EXPECT_EQ(all.size(), 301u);
  }
}

TEST(Packing, WhatIsCutIsCounted) {
  const Documents d({3, 7, 10, 4});
  const DocumentRows rows = count_document_rows(d.schema, 5, {});
  EXPECT_EQ(rows.cut_documents, 2);
  EXPECT_EQ(rows.cut_tokens, 2 + 5);
  EXPECT_EQ(rows.train_tokens, 3 + 5 + 5 + 4);
  EXPECT_EQ(default_context_length(*d.schema.documents), 10);
  const Documents longer({2000});
  EXPECT_EQ(default_context_length(*longer.schema.documents), 1024);
}

TEST(Packing, TargetsAreTheNextTokensThatCount) {
  Documents d({4, 6});
  d.tokens = {10, 11, 12, 13, 20, 21, 22, 23, 24, 25};
  d.counted = {0, 0, 1, 1, 0, 1, 0, 1, 1, 1};
  PackedRows rows = pack_documents(d.starts, d.all(), 12, true, 99);
  Partition p = d.partition();
  p.packed = &rows;
  Tokens tokens(12), positions(12), targets(12);
  ASSERT_EQ(rows.rows(), 1);
  copy_packed_row(p, 0, tokens, positions, targets);
  EXPECT_EQ(tokens, (Tokens{10, 11, 12, 13, 20, 21, 22, 23, 24, 25, 99, 99}));
  EXPECT_EQ(positions, (Tokens{0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 0, 0}));
  EXPECT_EQ(targets, (Tokens{-1, 12, 13, -1, 21, -1, 23, 24, 25, -1, -1, -1}));
  // The second document is cut to 5 tokens: the token behind is no target.
  rows = pack_documents(d.starts, d.all(), 5, true, 99);
  ASSERT_EQ(rows.rows(), 2);
  tokens.resize(5);
  positions.resize(5);
  targets.resize(5);
  copy_packed_row(p, 1, tokens, positions, targets);
  EXPECT_EQ(tokens, (Tokens{20, 21, 22, 23, 24}));
  EXPECT_EQ(targets, (Tokens{21, -1, 23, 24, -1}));
}

TEST(Packing, BatchesWeighTheirPartsByCountedTokens) {
  const Documents d(random_lengths(9, 200, 30));
  Split split = split_documents(d.schema, d.partition(), 32, {});
  Partition p = d.partition();
  p.packed = split.packed.get();
  const Preprocessing preprocessing =
      fit_preprocessing(d.schema, p, split.train, {.context_length = 32});
  Loader::Options options;
  options.batch_size = 8;
  options.seed = 3;
  options.parts = 4;
  Loader loader(d.schema, preprocessing, p, split.train, options);
  const Batch& batch = loader.next();
  ASSERT_EQ(batch.tokens.size(), 8u * 32);
  ASSERT_EQ(batch.positions.size(), 8u * 32);
  ASSERT_EQ(batch.loss_shares.size(), 4u);
  const auto counts = [&](size_t part) {
    const auto targets = std::span(batch.target_class).subspan(part * 64, 64);
    return std::ranges::count_if(targets, [](int32_t t) { return t >= 0; });
  };
  const auto all = counts(0) + counts(1) + counts(2) + counts(3);
  for (size_t part = 0; part < 4; ++part) {
    EXPECT_FLOAT_EQ(batch.loss_shares[part],
                    static_cast<float>(counts(part)) * 4 / static_cast<float>(all));
  }
  // The same step again, by other threads, after a resume.
  const Batch first = batch;
  options.threads = 3;
  Loader again(d.schema, preprocessing, p, split.train, options);
  EXPECT_EQ(again.next().tokens, first.tokens);
  const Tokens second = loader.next().tokens;
  options.first_step = 1;
  Loader resumed(d.schema, preprocessing, p, split.train, options);
  EXPECT_EQ(resumed.next().tokens, second);
}

TEST(DocumentsSchema, LengthsAreReadBackAndChecked) {
  const Documents d({3, 7, 7, 1});
  EXPECT_EQ(d.counts.quantile(0.5), 3);
  EXPECT_EQ(d.counts.quantile(0.75), 7);
  EXPECT_EQ(measure_lengths(d.counts).mean, 4.5);
  const std::string text = schema_text(d.schema);
  const auto back = parse_schema(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->documents, d.schema.documents);
  EXPECT_FALSE(back->stream());
  EXPECT_TRUE(back->next_token());
  const ModelInterface interface = back->interface(16);
  EXPECT_TRUE(interface.documents);
  EXPECT_EQ(interface.input, Shape({16}));
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, changed.npos) << text;
    changed.replace(at, from.size(), to);
    return !parse_schema(changed).ok();
  };
  EXPECT_TRUE(refused("[7,2]", "[7,3]"));
  EXPECT_TRUE(refused("[7,2]", "[7,-2]"));
  EXPECT_TRUE(refused("[3,1]", "[0,1]"));
}

}  // namespace
}  // namespace trainyard
