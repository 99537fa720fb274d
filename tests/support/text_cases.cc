#include "tests/support/graph_cases.h"

namespace trainyard::testing {
namespace {

struct RecurrentSizes {
  int64_t N, T, F, H;
};

enum class Reads : uint8_t { kSequence, kLast, kBoth };

// `reads` decides which gradients the layer gets: dy, dy_h or both.
CaseGraph recurrent(DType dtype, const std::string& op, const RecurrentSizes& s, bool bias,
                    const std::string& direction, Reads reads) {
  CaseBuilder b(dtype);
  const int64_t GH = (op == "LSTM" ? 4 : 3) * s.H;
  const TensorId flat = b.parameter("x_flat", {s.N * s.T, s.F});
  const TensorId x =
      b.one("x", "Reshape", {{"shape", std::vector<int64_t>{s.N, s.T, s.F}}}, {flat});
  std::vector<TensorId> inputs = {x, b.parameter("w", {GH, s.F}), b.parameter("r", {GH, s.H})};
  if (bias) {
    inputs.push_back(b.parameter("wb", {GH}));
    inputs.push_back(b.parameter("rb", {GH}));
  }
  const auto outputs = b.node("y", op, {{"hidden_size", s.H}, {"direction", direction}}, inputs, 4);
  if (reads == Reads::kLast) return b.finish(outputs[1]);
  const TensorId sequence =
      b.one("sequence", "Reshape", {{"shape", std::vector<int64_t>{s.N, s.T * s.H}}}, {outputs[0]});
  if (reads == Reads::kSequence) return b.finish(sequence);
  const TensorId last = b.one("last", "Gemm", {{"transB", int64_t{1}}},
                              {outputs[1], b.parameter("v", {s.T * s.H, s.H})});
  return b.finish(b.one("both", "Add", {}, {sequence, last}));
}

// The sequence is data, so dx is omitted.
CaseGraph recurrent_first_layer(DType dtype, const std::string& op) {
  CaseBuilder b(dtype);
  const int64_t GH = (op == "LSTM" ? 4 : 3) * 5;
  const auto outputs =
      b.node("y", op, {},
             {b.input("x", {3, 4, 2}), b.parameter("w", {GH, 2}), b.parameter("r", {GH, 5}),
              b.parameter("wb", {GH}), b.parameter("rb", {GH})},
             4);
  return b.finish(outputs[1]);
}

CaseGraph embedding_bag(DType dtype, int64_t N, int64_t T, int64_t V, int64_t D,
                        const std::string& mode, int64_t padding) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", "EmbeddingBag", {{"mode", mode}, {"padding_idx", padding}},
                        {b.parameter("table", {V, D}), b.tokens("tokens", {N, T}, V)}));
}

}  // namespace

void append_text_cases(std::vector<GraphCase>& cases) {
  const auto row = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build)});
  };
  for (const std::string op : {"LSTM", "GRU"}) {
    row(op + "/one", [op](DType t) {
      return recurrent(t, op, {1, 1, 1, 1}, true, "forward", Reads::kLast);
    });
    row(op + "/odd", [op](DType t) {
      return recurrent(t, op, {5, 3, 7, 11}, true, "forward", Reads::kBoth);
    });
    row(op + "/sequence", [op](DType t) {
      return recurrent(t, op, {2, 7, 3, 5}, true, "forward", Reads::kSequence);
    });
    row(op + "/last_no_bias", [op](DType t) {
      return recurrent(t, op, {3, 5, 2, 17}, false, "forward", Reads::kLast);
    });
    row(op + "/reverse", [op](DType t) {
      return recurrent(t, op, {3, 4, 3, 5}, true, "reverse", Reads::kBoth);
    });
    row(op + "/first_layer", [op](DType t) { return recurrent_first_layer(t, op); });
  }
  row("EmbeddingBag/one", [](DType t) { return embedding_bag(t, 1, 1, 1, 1, "mean", -1); });
  row("EmbeddingBag/mean", [](DType t) { return embedding_bag(t, 5, 7, 3, 19, "mean", 0); });
  row("EmbeddingBag/sum", [](DType t) { return embedding_bag(t, 4, 3, 11, 33, "sum", -1); });
  row("EmbeddingBag/only_padding", [](DType t) { return embedding_bag(t, 3, 1, 2, 5, "mean", 1); });
  const auto large = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build), /*is_large=*/true});
  };
  for (const std::string op : {"LSTM", "GRU"}) {
    large(op + "/units", [op](DType t) {
      return recurrent(t, op, {9, 3, 12, 40}, true, "reverse", Reads::kBoth);
    });
  }
  large("EmbeddingBag/long", [](DType t) { return embedding_bag(t, 23, 30, 5, 132, "mean", 0); });
  large("EmbeddingBag/large_table",
        [](DType t) { return embedding_bag(t, 40, 17, 600, 33, "sum", -1); });
}

}  // namespace trainyard::testing
