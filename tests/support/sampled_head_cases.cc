// Cases of a head and its loss over sampled classes (src/ops/sampled_xent.h), and of updates of the
// sampled rows.
#include <algorithm>

#include "src/base/philox.h"
#include "src/ops/shards.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {
namespace {

struct Sample {
  int64_t rows, width, classes, samples;
  int64_t counted = 0;            // > rows: includes labels of other ranks' rows
  std::vector<double> kept = {};  // labels of the earlier micro-batches
  int64_t micro_batches = 1;
};

// The head's tables are inputs, since these ops do not compute their gradients.
CaseGraph sampled_loss(DType dtype, const Sample& s, Attributes attributes) {
  CaseBuilder b(dtype);
  const TensorId labels = b.labels("labels", s.rows, s.classes);
  std::vector<TensorId> inputs = {labels, b.step(3)};
  const TensorId counted =
      s.counted == 0 ? kNoTensor : b.gathered_labels("counted", s.counted, s.classes);
  inputs.push_back(counted);
  if (s.micro_batches > 1) {
    std::vector<double> kept(static_cast<size_t>(s.samples), 0);  // the samples are drawn again
    kept.insert(kept.end(), s.kept.begin(), s.kept.end());
    kept.resize(static_cast<size_t>(s.samples + std::max(s.counted, s.rows) * s.micro_batches), -1);
    inputs.insert(inputs.end(),
                  {b.kept_rows("kept", kept), b.counter("micro_step", s.kept.empty() ? 0 : 1)});
    attributes.set("micro_batches", s.micro_batches);
  }
  attributes.set("classes", s.classes);
  attributes.set("samples", s.samples);
  attributes.set("seed", static_cast<int64_t>(0x9000000000000001u));
  attributes.set("stream", int64_t{stream_of("sample")});
  attributes.set("dtype", std::string(name_of(dtype)));
  const auto drawn = b.node("sample", "SampleClasses", attributes, inputs, 3);
  const TensorId w = b.input("w", {s.classes, s.width}), bias = b.input("b", {s.classes});
  const TensorId z =
      b.one("z", "Gemm", {{"transB", int64_t{1}}},
            {b.parameter("x", {s.rows, s.width}), b.one("w/rows", "TakeRows", {}, {w, drawn[0]}),
             b.one("b/rows", "TakeRows", {}, {bias, drawn[0]})});
  CaseGraph c = b.finish_with_loss(b.node("loss", "SampledSoftmaxCrossEntropyLoss",
                                          {{"samples", s.samples}}, {z, drawn[1], drawn[2]}, 2)[0]);
  if (counted == kNoTensor) return c;
  std::vector<double>& all = c.values.at(counted);  // this rank's rows are the last ones
  c.values.at(labels).assign(all.end() - s.rows, all.end());
  return c;
}

struct Lookups {
  int64_t table, width;
  int64_t counted;                // number of indices of all ranks
  Shape indices;                  // indices of this rank, the last ones of all
  int64_t others = 0;             // > 0: there are other ranks
  std::vector<double> kept = {};  // row numbers of the earlier micro-batches
  int64_t micro_batches = 1;
  bool is_one_row = false;
};

// The table is an input, since these ops do not compute its gradient.
CaseGraph distinct_lookup(DType dtype, const Lookups& s) {
  CaseBuilder b(dtype);
  const TensorId indices = b.tokens("indices", s.indices, s.table);
  const TensorId counted =
      s.others == 0 ? kNoTensor : b.gathered_labels("counted", s.counted, s.table);
  std::vector<TensorId> inputs = {indices, counted};
  if (s.micro_batches > 1) {
    std::vector<double> kept = s.kept;
    const int64_t size =
        std::min(s.table, (s.others == 0 ? s.indices.elements() : s.counted) * s.micro_batches);
    kept.resize(static_cast<size_t>(size), -1);
    inputs.insert(inputs.end(),
                  {b.kept_rows("kept", kept), b.counter("micro_step", s.kept.empty() ? 0 : 1)});
  }
  const auto found = b.node("distinct", "DistinctRows",
                            {{"table", s.table}, {"micro_batches", s.micro_batches}}, inputs, 2);
  const TensorId rows =
      b.one("rows", "TakeRows", {}, {b.input("table", {s.table, s.width}), found[0]});
  const TensorId x = b.one("x", "Gather", {}, {rows, found[1]});
  std::vector<int64_t> dims = s.indices.dims();
  dims.push_back(s.width);
  CaseGraph c = b.finish(b.one("y", "Mul", {}, {x, b.parameter("scale", Shape(dims))}));
  std::vector<double>& own = c.values.at(indices);
  if (s.is_one_row) std::ranges::fill(own, 3);
  if (counted != kNoTensor) {
    const std::vector<double>& all = c.values.at(counted);
    own.assign(all.end() - std::ssize(own), all.end());
  }
  return c;
}

CaseGraph rows_update(DType dtype, const std::string& op, bool keeps_all, const Shape& shape) {
  CaseBuilder b(dtype);
  std::vector<int64_t> dims = shape.dims();
  dims[0] = 4;
  const TensorId p = b.parameter("p", shape);
  const auto state = [&](const char* name) { return b.optimizer_state(name, shape); };
  Attributes attributes{{"weight_decay", 0.01}};
  std::vector<TensorId> inputs = {p, b.input("g", Shape(dims)),
                                  b.input_f32("learning_rate", 0.125)};
  if (op == "SgdUpdate") {
    if (keeps_all) attributes.set("momentum", 0.9);
    inputs.push_back(keeps_all ? state("v") : kNoTensor);
  } else if (op == "LionUpdate") {
    inputs.push_back(state("m"));
  } else if (op == "RmspropUpdate") {
    if (keeps_all) attributes.set("momentum", 0.9);
    inputs.insert(inputs.end(), {state("square"), keeps_all ? state("average") : kNoTensor,
                                 keeps_all ? state("momentum") : kNoTensor});
  } else {
    inputs.insert(inputs.end(), {b.step(2), state("m"), state("v")});
  }
  const TensorId rows = b.tokens("rows", {4}, shape[0]);
  inputs.push_back(rows);
  b.node("update", op, std::move(attributes), inputs, 0, Phase::kUpdate);
  CaseGraph c = b.finish_update();
  c.values.at(rows) = {4, 0, -1, 2};
  return c;
}

}  // namespace

void append_sampled_head_cases(std::vector<GraphCase>& cases) {
  const auto row = [&](const char* name, const Sample& sample, const Attributes& attributes = {},
                       bool is_large = false) {
    cases.push_back({std::string("SampledSoftmaxCrossEntropyLoss/") + name,
                     [=](DType t) { return sampled_loss(t, sample, attributes); }, is_large});
  };
  row("one", {1, 1, 2, 1});
  row("odd", {9, 5, 37, 11});
  row("half", {5, 3, 12, 6});  // many of the labels are sampled as well
  row("uniform", {9, 5, 37, 11}, {{"distribution", std::string("uniform")}});
  row("ignored", {9, 5, 7, 3}, {{"ignore_index", int64_t{3}}});
  row("none_counts", {2, 3, 2, 1}, {{"ignore_index", int64_t{1}}});
  cases.push_back({"SampledSoftmaxCrossEntropyLoss/uncounted", [](DType t) {
                     return with_uncounted(sampled_loss(t, {9, 5, 7, 3}, {}));
                   }});
  row("ranks", {3, 5, 37, 11, 9});
  row("ranks_ignored", {3, 5, 7, 3, 9}, {{"ignore_index", int64_t{2}}});
  row("first_micro_batch", {3, 5, 37, 11, 0, {}, 3});
  row("next_micro_batch", {3, 5, 37, 11, 9, {30, 36, 35}, 2});
  row("fours", {7, 8, 64, 25});
  row("warps", {9, 4, 3000, 263}, {}, true);
  row("parts", {300, 4, 2000, 700}, {}, true);  // more samples and labels than a block has threads
  row("rows", {1100, 4, 90, 20}, {}, true);
  const auto lookup = [&](const char* name, const Lookups& of, bool is_large = false) {
    cases.push_back({std::string("DistinctRows/") + name,
                     [=](DType t) { return distinct_lookup(t, of); }, is_large});
  };
  lookup("one", {1, 1, 1, {1}});
  lookup("odd", {37, 5, 11, {3, 7}});
  lookup("few_rows", {4, 3, 30, {30}});
  lookup("all_equal", {9, 4, 6, {2, 3}, 0, {}, 1, true});
  lookup("ranks", {37, 5, 14, {2, 3}, 4});
  lookup("first_micro_batch", {37, 5, 6, {2, 3}, 0, {}, 3});
  lookup("next_micro_batch", {37, 5, 12, {2, 3}, 1, {36, 7, 35}, 2});
  lookup("last_micro_batch", {8, 5, 6, {2, 3}, 0, {7, 0, 5, 2}, 3});
  lookup("parts", {3000, 4, 700, {2, 350}, 0, {2999, 1}, 2}, true);
  for (const char* op : {"SgdUpdate", "AdamUpdate", "AdamWUpdate", "RmspropUpdate", "LionUpdate"}) {
    const auto update = [&](const char* name, bool keeps_all, const Shape& shape) {
      cases.push_back(
          {op + std::string(name), [=](DType t) { return rows_update(t, op, keeps_all, shape); }});
    };
    update("/rows", true, {5, 7});
    update("/rows_of_fours", false, {9, 8});
    update("/rows_of_bias", true, {5});
  }
}

}  // namespace trainyard::testing
