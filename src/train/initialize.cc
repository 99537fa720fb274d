#include "src/train/initialize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/math/philox.h"
#include "src/base/check.h"
#include "src/base/philox.h"
#include "src/ops/shards.h"

namespace trainyard {

namespace {

double draw(const Initializer& init, uint64_t seed, uint32_t stream, uint64_t i) {
  switch (init.kind) {
    case Initializer::Kind::kConstant:
      return init.a;
    case Initializer::Kind::kUniform: {
      const double u = math::uniform01<double>(math::philox_u32(seed, stream, 0, i));
      return init.a + (init.b - init.a) * u;
    }
    case Initializer::Kind::kNormal: {
      // 1 - u is in (0, 1], so that the logarithm is finite.
      const double u = math::uniform01<double>(math::philox_u32(seed, stream, 0, 2 * i));
      const double v = math::uniform01<double>(math::philox_u32(seed, stream, 0, 2 * i + 1));
      return init.a + init.b * std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * v);
    }
  }
  return 0;
}

template <typename T>
void fill(const TensorInfo& tensor, uint64_t seed, const ShardElements& range,
          std::span<std::byte> out) {
  const uint32_t stream = stream_of(tensor.name);
  range.for_each_run([&](int64_t first, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const T value =
          static_cast<T>(draw(tensor.initializer, seed, stream, static_cast<uint64_t>(first + i)));
      std::memcpy(out.data() + static_cast<size_t>(at + i) * sizeof(T), &value, sizeof(T));
    }
  });
}

void check_whole(const TensorInfo& tensor, std::span<const std::byte> out) {
  TRAINYARD_CHECK(out.size() == static_cast<size_t>(tensor.type.bytes()),
                  tensor.name + ": buffer of the wrong size");
}

void initialize(const TensorInfo& tensor, uint64_t seed, const ShardElements& range,
                std::span<std::byte> out) {
  if (tensor.type.dtype == DType::kF64) {
    fill<double>(tensor, seed, range, out);
  } else if (tensor.type.dtype == DType::kI64) {  // the optimizer's counters
    fill<int64_t>(tensor, seed, range, out);
  } else {
    TRAINYARD_CHECK(tensor.type.dtype == DType::kF32,
                    tensor.name + ": no tensor that has a first value");
    fill<float>(tensor, seed, range, out);
  }
}

}  // namespace

void initialize_tensor(const TensorInfo& tensor, uint64_t seed, std::span<std::byte> out) {
  check_whole(tensor, out);
  initialize_part(tensor, seed, 0, out);
}

void initialize_part(const TensorInfo& tensor, uint64_t seed, int64_t first,
                     std::span<std::byte> out) {
  const auto size = static_cast<int64_t>(size_of(tensor.type.dtype));
  initialize(tensor, seed, {.runs = 1, .count = std::ssize(out) / size, .first = first}, out);
}

void initialize_shard(const TensorInfo& tensor, uint64_t seed, int64_t rank,
                      std::span<std::byte> out) {
  check_whole(tensor, out);
  std::ranges::fill(out, std::byte{0});
  initialize(tensor, seed, elements_of_shard(tensor, rank), out);
}

}  // namespace trainyard
