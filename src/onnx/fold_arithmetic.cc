// Arithmetic on constants. A size may depend on the batch (Extent). Operations whose result cannot
// be expressed without knowing the batch size are refused.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/onnx/constant_elements.h"
#include "src/onnx/importer_axes.h"

namespace trainyard::onnx {
namespace {

std::optional<Extent> compute(std::string_view op, Extent a, Extent b) {
  if (a.batch || b.batch) {
    int64_t count = 0;
    if (op == "Mul" && !(a.batch && b.batch) && !__builtin_mul_overflow(a.count, b.count, &count)) {
      return Extent{count, true};
    }
    if (op == "Div" && b.count > 0 && a.batch && a.count % b.count == 0) {
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
  } else if (op == "Div" || op == "Mod" || op == "Fmod") {
    if (y == 0 || (y == -1 && x == std::numeric_limits<int64_t>::min())) return std::nullopt;
    r = op == "Div" ? x / y : op == "Fmod" ? x % y : ((x % y) + y) % y;
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
  } else if (op == "Xor") {
    r = (x != 0) != (y != 0);
  } else if (op == "Pow") {
    const double power = std::pow(static_cast<double>(x), static_cast<double>(y));
    if (!(std::fabs(power) < 9e15)) return std::nullopt;  // a double has 53 bits
    r = static_cast<int64_t>(power);
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
  if (op == "Fmod") return std::fmod(x, y);
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

/// Returns true if `to`, which was computed from `from`, is the same for the stored samples
/// although `from` is not.
bool hides_samples(const Constant& from, const Constant& to) {
  return !one_sample(from).ok() && one_sample(to).ok();
}

Error hidden_samples(const NodeImport& n) {
  return n.refuse("compares or rounds numbers that differ between samples");
}

/// Returns true if an operation whose result is the same for the stored samples may give another
/// one for others. Numbers of samples change by the same step from sample to sample, so an order of
/// the operands stays unless a step brings them closer.
bool may_change(std::string_view op, const Constant& a, const Constant& b) {
  if (op == "Div" || op == "Mod" || op == "Fmod") return true;
  if (!compare(op, 0.0f, 0.0f) && op != "Min" && op != "Max") return false;
  const auto difference = [&](int64_t i) {
    return a.is_float
               ? static_cast<double>(at(*a.floats, a, i)) - static_cast<double>(at(*b.floats, b, i))
               : static_cast<double>(at(*a.ints, a, i).count) -
                     static_cast<double>(at(*b.ints, b, i).count);
  };
  const std::vector<int64_t> sizes = stored_sizes(a.dims), strides = strides_of(sizes);
  for (size_t k = 0; k < sizes.size(); ++k) {
    const int64_t step = strides[k] * a.dims[k].count;  // to the same element of the next sample
    for (int64_t i = 0; a.dims[k].batch && i < product(sizes); ++i) {
      if (i / step % kProbeSamples != 0) continue;
      const double first = difference(i), change = difference(i + step) - first;
      if ((first > 0 && change < 0) || (first < 0 && change > 0)) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Extent> size_arithmetic(std::string_view op, Extent a, Extent b) {
  return compute(op, a, b);
}

Result<bool> fold_not(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
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
  const Constant given = c;
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
  if (hides_samples(given, c)) return hidden_samples(n);
  return c;
}

Result<bool> fold_cast(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  ASSIGN_OR_RETURN(Constant c, cast_constant(n, *n.find_constant(0), n.get_int("to", 0)));
  (void)n.give(std::move(c));
  return true;
}

Result<Constant> chosen(const Constant& test, const Constant& x, const Constant& y) {
  if (test.is_float || x.is_float != y.is_float) return misfit("the operands have different types");
  auto dims = broadcast_dims(test.dims, x.dims);
  if (dims) dims = broadcast_dims(*dims, y.dims);
  if (!dims || !may_hold(product(stored_sizes(*dims))))
    return misfit("the shapes do not broadcast");
  const Constant t = spread(test, *dims), a = spread(x, *dims), b = spread(y, *dims);
  std::vector<float> floats;
  std::vector<Extent> ints;
  for (int64_t i = 0; i < product(stored_sizes(*dims)); ++i) {
    const Constant& from = at(*t.ints, t, i) != Extent{0, false} ? a : b;
    if (x.is_float) {
      floats.push_back(at(*from.floats, from, i));
    } else {
      ints.push_back(at(*from.ints, from, i));
    }
  }
  Constant result =
      x.is_float ? float_constant({}, std::move(floats)) : int_constant({}, std::move(ints));
  return with_dims(std::move(result), *dims);
}

Result<bool> fold_where(NodeImport& n) {
  for (size_t i = 0; i < 3; ++i) {
    if (!n.has_input(i)) return n.refuse("needs three inputs");
  }
  auto result = chosen(*n.find_constant(0), *n.find_constant(1), *n.find_constant(2));
  if (!result.ok()) return n.refuse(result.error().message);
  (void)n.give(std::move(result).value());
  return true;
}

namespace {

Result<Constant> combined(const NodeImport& n, std::string_view op, const Constant& first,
                          const Constant& second) {
  const auto batch = n.fixed_batch();
  const Constant x = with_open_batch(first, second.dims, batch);
  Constant y = with_open_batch(second, first.dims, batch);
  if (op == "Pow" && x.is_float && !y.is_float) {
    ASSIGN_OR_RETURN(y, cast_constant(n, y, static_cast<int64_t>(ElementType::kFloat)));
  }
  if (x.is_float != y.is_float) return n.refuse("the operands have different types");
  const auto dims = broadcast_dims(x.dims, y.dims);
  if (!dims) {
    return n.refuse(to_string(x.dims) + " and " + to_string(y.dims) + " do not broadcast");
  }
  const bool is_splat = (x.is_splat || x.stored() == 1) && (y.is_splat || y.stored() == 1);
  const int64_t count = is_splat ? 1 : product(stored_sizes(*dims));
  if (!may_hold(count)) return too_large(n);
  const Constant a = is_splat ? x : spread(x, *dims), b = is_splat ? y : spread(y, *dims);
  std::vector<float> floats;
  std::vector<Extent> ints;
  for (int64_t i = 0; i < count; ++i) {
    if (!x.is_float) {
      const auto r = compute(op, at(*a.ints, a, i), at(*b.ints, b, i));
      if (!r) return n.refuse("sizes that include the batch or exceed 64 bits are not supported");
      ints.push_back(*r);
    } else if (const auto r = compute(op, at(*a.floats, a, i), at(*b.floats, b, i))) {
      floats.push_back(*r);
    } else if (const auto c = compare(op, at(*a.floats, a, i), at(*b.floats, b, i))) {
      ints.push_back({*c, false});
    } else {
      return n.refuse("numbers are not supported");
    }
  }
  const bool is_float = x.is_float && !compare(op, 0.0f, 0.0f);
  Constant result =
      is_float ? float_constant({}, std::move(floats)) : int_constant({}, std::move(ints));
  result.trainable = result.is_float && (x.trainable || y.trainable);
  result.is_splat = is_splat && product(stored_sizes(*dims)) != 1;
  result = with_dims(std::move(result), *dims);
  const bool hides = hides_samples(x, result) || hides_samples(y, result);
  if (hides && may_change(op, a, b)) return hidden_samples(n);
  return result;
}

bool has_layer(std::string_view op) {
  const ImportRow* row = find_import_row(op);
  return row != nullptr && row->import != nullptr && !compare(op, 0.0f, 0.0f);
}

/// Returns true if an operation with `other` would repeat the numbers of a parameter, which would
/// then be trained one by one.
bool repeats_parameter(const Constant& c, const Constant& other) {
  const auto dims = broadcast_dims(c.dims, other.dims);
  if (!c.trainable || !other.is_float || !dims) return false;
  const int64_t count = product(counts_of(*dims));
  return may_hold(count) && count != product(counts_of(c.dims));
}

}  // namespace

// Folds operations of two constants, and Sum, Mean, Min and Max of any number. Layers repeat a
// parameter.
Result<bool> fold_arithmetic(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  const bool is_sum = n.op() == "Sum" || n.op() == "Mean";
  const std::string_view op = is_sum ? "Add" : n.get_int("fmod", 0) != 0 ? "Fmod" : n.op();
  Constant result = *n.find_constant(0);
  for (size_t i = 1; i < n.input_count(); ++i) {
    if (!n.has_input(i)) return n.refuse("input " + std::to_string(i) + " is left out");
    const Constant& next = *n.find_constant(i);
    const bool repeats = repeats_parameter(result, next) || repeats_parameter(next, result);
    if (repeats && has_layer(op)) return false;
    ASSIGN_OR_RETURN(result, combined(n, op, result, next));
  }
  if (n.op() == "Mean") {
    const Constant count = float_constant({}, {static_cast<float>(n.input_count())});
    ASSIGN_OR_RETURN(result, combined(n, "Div", result, count));
  }
  (void)n.give(std::move(result));
  return true;
}

namespace {

/// What becomes of a parameter in a file that does not name its parameters.
enum class OfParameter : uint8_t {
  kTrained,  // its function replaces it, and is trained
  kLayer,    // a layer computes the function
  kFixed,    // no layer computes the function, so its value is fixed
};

struct Function {
  std::string_view op;
  OfParameter of_parameter;
  float (*compute)(float x);
};

constexpr Function kFunctions[] = {
    {"Neg", OfParameter::kTrained, [](float x) { return -x; }},
    {"Abs", OfParameter::kTrained, [](float x) { return std::fabs(x); }},
    {"Sqrt", OfParameter::kTrained, [](float x) { return std::sqrt(x); }},
    {"Exp", OfParameter::kTrained, [](float x) { return std::exp(x); }},
    {"Log", OfParameter::kTrained, [](float x) { return std::log(x); }},
    {"Reciprocal", OfParameter::kTrained, [](float x) { return 1 / x; }},
    {"Tanh", OfParameter::kLayer, [](float x) { return std::tanh(x); }},
    {"Sigmoid", OfParameter::kLayer, [](float x) { return 1 / (1 + std::exp(-x)); }},
    {"Relu", OfParameter::kLayer, [](float x) { return x < 0 ? 0.0f : x; }},
    {"Floor", OfParameter::kFixed, [](float x) { return std::floor(x); }},
    {"Ceil", OfParameter::kFixed, [](float x) { return std::ceil(x); }},
    {"Round", OfParameter::kFixed, [](float x) { return std::nearbyint(x); }},
    {"Sign", OfParameter::kFixed, [](float x) { return x > 0   ? 1.0f
                                                       : x < 0 ? -1.0f
                                                               : x; }},
    {"Sin", OfParameter::kFixed, [](float x) { return std::sin(x); }},
    {"Cos", OfParameter::kFixed, [](float x) { return std::cos(x); }},
    {"Tan", OfParameter::kFixed, [](float x) { return std::tan(x); }},
    {"Atan", OfParameter::kFixed, [](float x) { return std::atan(x); }},
    {"Erf", OfParameter::kFixed, [](float x) { return std::erf(x); }},
};

const Function* find_function(std::string_view op) {
  const auto* const it = std::ranges::find(kFunctions, op, &Function::op);
  return it == std::end(kFunctions) ? nullptr : it;
}

}  // namespace

// Bounds are attributes before opset 11. A layer clips a parameter.
Result<bool> fold_clip(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  Constant result = *n.find_constant(0);
  if (result.trainable) return false;
  for (const auto& [i, name, op] :
       {std::tuple<size_t, const char*, const char*>(1, "min", "Max"), {2, "max", "Min"}}) {
    std::optional<Constant> bound;
    if (n.has(name)) bound = float_constant({}, {static_cast<float>(n.get_float(name, 0))});
    if (n.has_input(i)) bound = *n.find_constant(i);
    if (!bound) continue;
    ASSIGN_OR_RETURN(result, combined(n, op, result, *bound));
  }
  (void)n.give(std::move(result));
  return true;
}

// IsNaN and IsInf
Result<bool> fold_is(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  const Constant& c = *n.find_constant(0);
  if (!c.is_float) return n.refuse("whole numbers are not supported");
  const bool above = n.get_int("detect_positive", 1) != 0;
  const bool below = n.get_int("detect_negative", 1) != 0;
  std::vector<Extent> values;
  for (const float x : *c.floats) {
    const bool is = n.op() == "IsNaN" ? std::isnan(x) : std::isinf(x) && (x > 0 ? above : below);
    values.push_back({is ? 1 : 0, false});
  }
  Constant result = with_dims(int_constant({}, std::move(values)), c.dims);
  result.is_splat = c.is_splat;
  (void)n.give(std::move(result));
  return true;
}

Result<bool> fold_unary(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  Constant c = *n.find_constant(0);
  const std::string_view op = n.op();
  if (!c.is_float) {
    if (op != "Neg" && op != "Abs" && op != "Sign")
      return n.refuse("whole numbers are not supported");
    std::vector<Extent> values = *c.ints;
    for (Extent& e : values) {
      if (e.batch || e.count == std::numeric_limits<int64_t>::min())
        return n.refuse("sizes are not supported");
      if (op == "Sign") {
        e.count = (e.count > 0) - (e.count < 0);
      } else {
        e.count = op == "Neg" || e.count < 0 ? -e.count : e.count;
      }
    }
    c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
    if (hides_samples(*n.find_constant(0), c)) return hidden_samples(n);
    (void)n.give(std::move(c));
    return true;
  }
  const Function* f = find_function(op);
  if (f == nullptr || (c.trainable && f->of_parameter == OfParameter::kLayer)) return false;
  c.trainable = c.trainable && f->of_parameter == OfParameter::kTrained;
  std::vector<float> values = *c.floats;
  std::ranges::transform(values, values.begin(), f->compute);
  c.floats = std::make_shared<const std::vector<float>>(std::move(values));
  c.initializer.clear();
  if (hides_samples(*n.find_constant(0), c)) return hidden_samples(n);
  (void)n.give(std::move(c));
  return true;
}

}  // namespace trainyard::onnx
