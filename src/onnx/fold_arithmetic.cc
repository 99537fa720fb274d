// Arithmetic on constants. A size may depend on the batch (Extent). Operations whose result cannot
// be expressed without knowing the batch size are refused.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {
namespace {

/// Returns the result of `op` on two extents; nothing if it depends on the batch size in a way that
/// an Extent cannot express.
std::optional<Extent> compute(std::string_view op, Extent a, Extent b) {
  if (a.batch || b.batch) {
    if (op == "Mul" && !(a.batch && b.batch)) return Extent{a.count * b.count, true};
    if (op == "Div" && b.count != 0 && a.batch && a.count % b.count == 0) {
      return Extent{a.count / b.count, !b.batch};
    }
    if (op == "Equal" && a.batch == b.batch) return Extent{a.count == b.count ? 1 : 0, false};
    if (op == "Equal" && (a.batch ? b : a).count < 1) return Extent{0, false};
    if ((op == "Add" || op == "Sub") && b == Extent{0, false}) return a;
    if (op == "Add" && a == Extent{0, false}) return b;
    if ((op == "Max" || op == "Min") && a == b) return a;
    // A batch has at least one sample, so count * batch is at least 1.
    if (op == "Max" && (a.batch ? b : a).count <= 1) return a.batch ? a : b;
    return std::nullopt;
  }
  const int64_t x = a.count, y = b.count;
  int64_t r = 0;
  if (op == "Add") {
    if (__builtin_add_overflow(x, y, &r)) return std::nullopt;
  } else if (op == "Sub") {
    if (__builtin_sub_overflow(x, y, &r)) return std::nullopt;
  } else if (op == "Mul") {
    if (__builtin_mul_overflow(x, y, &r)) return std::nullopt;
  } else if (op == "Div" || op == "Mod") {
    if (y == 0 || (y == -1 && x == std::numeric_limits<int64_t>::min())) return std::nullopt;
    r = op == "Div" ? x / y : ((x % y) + y) % y;
  } else if (op == "Min") {
    r = std::min(x, y);
  } else if (op == "Max") {
    r = std::max(x, y);
  } else if (op == "Equal") {
    r = x == y;
  } else if (op == "Less") {
    r = x < y;
  } else if (op == "LessOrEqual") {
    r = x <= y;
  } else if (op == "Greater") {
    r = x > y;
  } else if (op == "GreaterOrEqual") {
    r = x >= y;
  } else if (op == "And") {
    r = x != 0 && y != 0;
  } else if (op == "Or") {
    r = x != 0 || y != 0;
  } else {
    return std::nullopt;
  }
  return Extent{r, false};
}

std::optional<float> compute(std::string_view op, float x, float y) {
  if (op == "Add") return x + y;
  if (op == "Sub") return x - y;
  if (op == "Mul") return x * y;
  if (op == "Div") return x / y;
  if (op == "Pow") return std::pow(x, y);
  if (op == "Min") return std::fmin(x, y);
  if (op == "Max") return std::fmax(x, y);
  return std::nullopt;
}

std::optional<int64_t> compare(std::string_view op, float x, float y) {
  if (op == "Equal") return x == y;
  if (op == "Less") return x < y;
  if (op == "LessOrEqual") return x <= y;
  if (op == "Greater") return x > y;
  if (op == "GreaterOrEqual") return x >= y;
  return std::nullopt;
}

}  // namespace

Result<bool> fold_reduce_ints(NodeImport& n) {
  const Constant& c = *n.find_constant(0);
  if (c.is_float || c.is_splat || c.dims.size() != 1) return n.refuse("expected a list of sizes");
  Extent all{n.op() == "ReduceProd" ? 1 : 0, false};
  for (const Extent& e : *c.ints) {
    const auto next = compute(n.op() == "ReduceProd" ? "Mul" : "Add", all, e);
    if (!next) return n.refuse("sizes that include the batch are not supported");
    all = *next;
  }
  const std::vector<int64_t> dims(static_cast<size_t>(n.get_int("keepdims", 1) != 0 ? 1 : 0), 1);
  (void)n.give(int_constant(dims, {all}));
  return true;
}

Result<bool> fold_not(NodeImport& n) {
  Constant c = *n.find_constant(0);
  if (c.is_float) return n.refuse("numbers are not supported");
  std::vector<Extent> values = *c.ints;
  for (Extent& e : values) e = {!e.batch && e.count == 0 ? 1 : 0, false};
  c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
  (void)n.give(std::move(c));
  return true;
}

Result<Constant> cast_constant(const NodeImport& n, Constant c, int64_t to) {
  if (!is_float_type(to) && !is_int_type(to)) return n.refuse("cannot cast to " + name_of(to));
  c.initializer.clear();
  if (is_float_type(to) && !c.is_float) {
    if (has_batch(*c.ints))
      return n.refuse("cannot cast a size that includes the batch to " + name_of(to));
    std::vector<float> values;
    for (const Extent& e : *c.ints) values.push_back(static_cast<float>(e.count));
    c.floats = std::make_shared<const std::vector<float>>(std::move(values));
    c.is_float = true;
  } else if (!is_float_type(to) && c.is_float) {
    if (c.origins) return n.refuse("cannot cast trained parameters to " + name_of(to));
    std::vector<Extent> values;
    for (const float x : *c.floats) {
      if (!(std::fabs(x) < 9e18f)) return n.refuse("a number exceeds 64 bits");
      values.push_back({to == 9 ? (x != 0 ? 1 : 0) : static_cast<int64_t>(x), false});
    }
    c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
    c.is_float = c.trainable = false;
  } else if (to == 9) {
    std::vector<Extent> values = *c.ints;
    for (Extent& e : values) e = {e.batch || e.count != 0 ? 1 : 0, false};
    c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
  }
  return c;
}

Result<bool> fold_cast(NodeImport& n) {
  ASSIGN_OR_RETURN(Constant c, cast_constant(n, *n.find_constant(0), n.get_int("to", 0)));
  (void)n.give(std::move(c));
  return true;
}

Result<bool> fold_where(NodeImport& n) {
  const Constant &test = *n.find_constant(0), &x = *n.find_constant(1), &y = *n.find_constant(2);
  for (const Constant* c : {&test, &x, &y}) {
    if (has_batch(c->dims)) return n.refuse("a shape that includes the batch is not supported");
  }
  if (test.is_float || x.is_float != y.is_float)
    return n.refuse("the operands have different types");
  auto dims = broadcast_dims(counts_of(test.dims), counts_of(x.dims));
  if (dims) dims = broadcast_dims(*dims, counts_of(y.dims));
  if (!dims || !may_hold(product(*dims))) return n.refuse("the shapes do not broadcast");
  const auto spread = [&](const Constant& c) {
    return strided(c, *dims, 0, *broadcast_steps(counts_of(c.dims), *dims));
  };
  const Constant t = spread(test), a = spread(x), b = spread(y);
  std::vector<float> floats;
  std::vector<Extent> ints;
  for (int64_t i = 0; i < product(*dims); ++i) {
    const bool first = at(*t.ints, t, i).count != 0;
    if (x.is_float) {
      floats.push_back(first ? at(*a.floats, a, i) : at(*b.floats, b, i));
    } else {
      ints.push_back(first ? at(*a.ints, a, i) : at(*b.ints, b, i));
    }
  }
  Constant result =
      x.is_float ? float_constant(*dims, std::move(floats)) : int_constant(*dims, std::move(ints));
  (void)n.give(std::move(result));
  return true;
}

Result<bool> fold_arithmetic(NodeImport& n) {
  if (n.input_count() == 1) {
    if (!n.has_input(0)) return n.refuse("has no input");
    (void)n.give(*n.find_constant(0));
    return true;
  }
  if (n.input_count() != 2 || !n.has_input(0) || !n.has_input(1)) return false;
  const Constant &x = *n.find_constant(0), &y = *n.find_constant(1);
  if (has_batch(x.dims) || has_batch(y.dims))
    return n.refuse("a constant whose shape includes the batch is not supported");
  if (x.is_float != y.is_float) return n.refuse("the operands have different types");
  const auto dims = broadcast_dims(counts_of(x.dims), counts_of(y.dims));
  if (!dims || !may_hold(product(*dims))) return n.refuse("the shapes do not broadcast");
  const Constant a = strided(x, *dims, 0, *broadcast_steps(counts_of(x.dims), *dims));
  const Constant b = strided(y, *dims, 0, *broadcast_steps(counts_of(y.dims), *dims));
  std::vector<float> floats;
  std::vector<Extent> ints;
  for (int64_t i = 0; i < product(*dims); ++i) {
    if (!x.is_float) {
      const auto r = compute(n.op(), at(*a.ints, a, i), at(*b.ints, b, i));
      if (!r) return n.refuse("sizes that include the batch or exceed 64 bits are not supported");
      ints.push_back(*r);
    } else if (const auto r = compute(n.op(), at(*a.floats, a, i), at(*b.floats, b, i))) {
      floats.push_back(*r);
    } else if (const auto c = compare(n.op(), at(*a.floats, a, i), at(*b.floats, b, i))) {
      ints.push_back({*c, false});
    } else {
      return n.refuse("numbers are not supported");
    }
  }
  const bool is_float = x.is_float && !compare(n.op(), 0.0f, 0.0f);
  Constant result =
      is_float ? float_constant(*dims, std::move(floats)) : int_constant(*dims, std::move(ints));
  result.trainable = result.is_float && (x.trainable || y.trainable);
  (void)n.give(std::move(result));
  return true;
}

Result<bool> fold_unary(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  Constant c = *n.find_constant(0);
  const std::string_view op = n.op();
  if (!c.is_float) {
    if (op != "Neg" && op != "Abs") return n.refuse("whole numbers are not supported");
    std::vector<Extent> values = *c.ints;
    for (Extent& e : values) {
      if (e.batch || e.count == std::numeric_limits<int64_t>::min())
        return n.refuse("sizes are not supported");
      e.count = op == "Neg" || e.count < 0 ? -e.count : e.count;
    }
    c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
    (void)n.give(std::move(c));
    return true;
  }
  float (*f)(float) = op == "Neg"          ? +[](float x) { return -x; }
                      : op == "Abs"        ? +[](float x) { return std::fabs(x); }
                      : op == "Sqrt"       ? +[](float x) { return std::sqrt(x); }
                      : op == "Exp"        ? +[](float x) { return std::exp(x); }
                      : op == "Log"        ? +[](float x) { return std::log(x); }
                      : op == "Reciprocal" ? +[](float x) { return 1 / x; }
                      : op == "Floor"      ? +[](float x) { return std::floor(x); }
                      : op == "Ceil"       ? +[](float x) { return std::ceil(x); }
                                           : nullptr;
  if (f == nullptr) return false;
  std::vector<float> values = *c.floats;
  std::ranges::transform(values, values.begin(), f);
  c.floats = std::make_shared<const std::vector<float>>(std::move(values));
  c.initializer.clear();
  (void)n.give(std::move(c));
  return true;
}

}  // namespace trainyard::onnx
