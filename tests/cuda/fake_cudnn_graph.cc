#include "tests/cuda/fake_cudnn_graph.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_map>

#include "kernels/math/activations.h"
#include "tests/cuda/fake_cuda.h"

namespace trainyard::testing {

using kernels::cuda::Format;

Format DnnTensor::format() const {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return Format::kF32;
    case CUDNN_DATA_BFLOAT16:
      return Format::kBf16;
    case CUDNN_DATA_HALF:
      return Format::kF16;
    default:
      std::abort();
  }
}
float DnnTensor::read(const void* data, int64_t i) const { return read_element(format(), data, i); }
void DnnTensor::write(void* data, int64_t i, float value) const {
  write_element(format(), data, i, value);
}

namespace {

using Index = std::array<int64_t, 4>;
using Values = std::vector<float>;  // a tensor's values in the order of its indices

/// Calls f(index, place in Values).
template <typename F>
void for_indices(const std::array<int64_t, 4>& size, const F& f) {
  Index i{};
  size_t place = 0;
  for (i[0] = 0; i[0] < size[0]; ++i[0]) {
    for (i[1] = 0; i[1] < size[1]; ++i[1]) {
      for (i[2] = 0; i[2] < size[2]; ++i[2]) {
        for (i[3] = 0; i[3] < size[3]; ++i[3]) f(i, place++);
      }
    }
  }
}
/// The position of an element in Values; a dimension of size 1 is broadcast.
size_t place_of(const DnnTensor& t, Index i) {
  for (size_t k = 0; k < 4; ++k) i[k] = t.size[k] == 1 ? 0 : i[k];
  return static_cast<size_t>(((i[0] * t.size[1] + i[1]) * t.size[2] + i[2]) * t.size[3] + i[3]);
}
int64_t offset_of(const DnnTensor& t, const Index& i) { return t.at(i[0], i[1], i[2], i[3]); }

bool spreads_to(const DnnTensor& from, const DnnTensor& to) {
  for (size_t k = 0; k < 4; ++k) {
    if (from.size[k] != 1 && from.size[k] != to.size[k]) return false;
  }
  return true;
}
bool is_number_type(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF;
}
bool has_two(cudnnPointwiseMode_t mode) {
  return mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_SUB ||
         mode == CUDNN_POINTWISE_MUL || mode == CUDNN_POINTWISE_DIV ||
         mode == CUDNN_POINTWISE_CMP_GE || mode == CUDNN_POINTWISE_GELU_BWD;
}

bool pointwise_fits(const DnnOperation& o) {
  if (!spreads_to(o.x, o.y) || (o.b && !spreads_to(*o.b, o.y)) || (o.t && !spreads_to(*o.t, o.y))) {
    return false;
  }
  const bool is_index = o.mode == CUDNN_POINTWISE_GEN_INDEX;
  const bool is_choice = o.mode == CUDNN_POINTWISE_BINARY_SELECT;
  if (o.b.has_value() != (has_two(o.mode) || is_choice) || o.t.has_value() != is_choice ||
      o.axis.has_value() != is_index) {
    return false;
  }
  if (is_index) return o.y.type == CUDNN_DATA_INT32 && *o.axis >= 0 && *o.axis < 4;
  if (o.mode == CUDNN_POINTWISE_CMP_GE) {
    return o.x.type == o.b->type && o.y.type == CUDNN_DATA_BOOLEAN && o.math == CUDNN_DATA_BOOLEAN;
  }
  if (is_choice && o.t->type != CUDNN_DATA_BOOLEAN) return false;
  return is_number_type(o.x.type) && is_number_type(o.y.type) && o.math == CUDNN_DATA_FLOAT &&
         (!o.b || is_number_type(o.b->type));
}

float apply(const DnnOperation& o, const Index& i, float x, float b, bool t) {
  switch (o.mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_GEN_INDEX:
      return static_cast<float>(i[static_cast<size_t>(*o.axis)]);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1.0f : 0.0f;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return t ? x : b;
    case CUDNN_POINTWISE_GELU_FWD:
      return math::GeluErf::f(x);
    case CUDNN_POINTWISE_GELU_BWD:
      return math::GeluErf::df(x, b);
    default:
      std::abort();
  }
}

class Interpreter {
 public:
  Interpreter(const std::map<int64_t, void*>& memory, const std::map<int64_t, float>& numbers)
      : memory_(memory), numbers_(numbers) {}

  void run(const DnnOperation& o) {
    const Values x = load(o.x), b = o.b ? load(*o.b) : Values{}, t = o.t ? load(*o.t) : Values{};
    Values y(static_cast<size_t>(o.y.elements()));
    switch (o.kind) {
      case DnnOperation::Kind::kMatmul:
        for_indices(o.y.size, [&](const Index& i, size_t place) {
          for (int64_t k = 0; k < o.x.size[3]; ++k) {
            y[place] +=
                x[place_of(o.x, {i[0], i[1], i[2], k})] * b[place_of(*o.b, {i[0], i[1], k, i[3]})];
          }
        });
        break;
      case DnnOperation::Kind::kPointwise:
        for_indices(o.y.size, [&](const Index& i, size_t place) {
          y[place] = apply(o, i, x[place_of(o.x, i)], o.b ? b[place_of(*o.b, i)] : 0.0f,
                           o.t && t[place_of(*o.t, i)] != 0);
        });
        break;
      case DnnOperation::Kind::kReduce: {
        const bool is_max = o.reduction == CUDNN_REDUCE_TENSOR_MAX;
        if (is_max) std::fill(y.begin(), y.end(), -std::numeric_limits<float>::infinity());
        for_indices(o.x.size, [&](const Index& i, size_t place) {
          float& to = y[place_of(o.y, i)];
          to = is_max ? std::max(to, x[place]) : to + x[place];
        });
        break;
      }
      case DnnOperation::Kind::kReshape: {
        std::unordered_map<int64_t, float> by_offset;
        for_indices(o.x.size,
                    [&](const Index& i, size_t place) { by_offset[offset_of(o.x, i)] = x[place]; });
        for_indices(o.y.size, [&](const Index& i, size_t place) {
          y[place] = by_offset.at(offset_of(o.y, i));
        });
        break;
      }
    }
    store(o.y, std::move(y));
  }

 private:
  Values load(const DnnTensor& t) const {
    if (t.by_value) return {numbers_.at(t.id)};
    if (t.is_virtual) return made_.at(t.id);
    Values values(static_cast<size_t>(t.elements()));
    const void* const data = memory_.at(t.id);
    for_indices(t.size, [&](const Index& i, size_t place) {
      values[place] = t.read(data, offset_of(t, i));
    });
    return values;
  }
  void store(const DnnTensor& t, Values values) {
    if (!t.is_virtual) {
      void* const data = memory_.at(t.id);
      for_indices(t.size, [&](const Index& i, size_t place) {
        t.write(data, offset_of(t, i), values[place]);
      });
      return;
    }
    if (t.type == CUDNN_DATA_BFLOAT16 || t.type == CUDNN_DATA_HALF) {
      for (float& v : values) {
        uint16_t stored = 0;
        t.write(&stored, 0, v);
        v = t.read(&stored, 0);
      }
    }
    // two operations write the tensor
    if (!made_.emplace(t.id, std::move(values)).second) std::abort();
  }

  const std::map<int64_t, void*>& memory_;
  const std::map<int64_t, float>& numbers_;
  std::map<int64_t, Values> made_;  // virtual tensors
};

}  // namespace

bool fits(const DnnOperation& o) {
  const auto &x = o.x.size, &y = o.y.size;
  switch (o.kind) {
    case DnnOperation::Kind::kMatmul: {
      const auto& b = o.b->size;
      return x[0] == b[0] && x[0] == y[0] && x[1] == b[1] && x[1] == y[1] && x[2] == y[2] &&
             x[3] == b[2] && b[3] == y[3] && is_number_type(o.x.type) && is_number_type(o.y.type) &&
             is_number_type(o.b->type);
    }
    case DnnOperation::Kind::kPointwise:
      return pointwise_fits(o);
    case DnnOperation::Kind::kReduce:
      return spreads_to(o.y, o.x) &&
             (o.reduction == CUDNN_REDUCE_TENSOR_MAX || o.reduction == CUDNN_REDUCE_TENSOR_ADD);
    case DnnOperation::Kind::kReshape:
      return o.x.elements() == o.y.elements() && o.y.is_virtual;
  }
  return false;
}

void compute(const std::vector<DnnOperation>& operations, const std::map<int64_t, void*>& memory,
             const std::map<int64_t, float>& numbers) {
  Interpreter interpreter(memory, numbers);
  for (const DnnOperation& o : operations) interpreter.run(o);
}

}  // namespace trainyard::testing
