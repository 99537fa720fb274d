// Tests of arrays of NumPy and safetensors files. They fail if elements are in the wrong place,
// order or type, headers with false sizes or objects that only Python can read are accepted, or
// targets are misinterpreted.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/data/arrays/array_file.h"
#include "src/data/preprocessing.h"
#include "tests/data/data_samples.h"
#include "tests/data/image_samples.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using namespace std::string_literals;

const nlohmann::json& arrays_golden() {
  static const nlohmann::json json = [] {
    std::ifstream in(testing::source_path("tests/golden/arrays.json"));
    return nlohmann::json::parse(in);
  }();
  return json;
}

std::vector<float> floats_in(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}
std::vector<float> golden_floats(const nlohmann::json& text) {
  return floats_in(from_base64(text));
}

/// Expects equal numbers, where NaN equals NaN and 0 equals -0.
void expect_same(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
        << i << ": " << a[i] << " " << b[i];
    EXPECT_EQ(std::signbit(a[i]), std::signbit(b[i])) << i;
  }
}

Result<Array> read(const std::string& bytes) {
  const auto source = open_memory_source(bytes, "inputs");
  return read_npy(*source, "inputs");
}

/// Returns a NPY file of version 1.0.
std::string npy_with(const std::string& header, const std::string& data) {
  std::string file = "\x93NUMPY";
  file +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return file + header + data;
}
std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  return npy_with("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n",
                  data);
}
std::string f4(const std::vector<float>& values, const std::string& shape) {
  return npy("<f4", shape,
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}
std::string u1(const std::string& bytes, const std::string& shape) {
  return npy("|u1", shape, bytes);
}

IngestRequest arrays(const ArraysOptions& options = {}) {
  IngestRequest request;
  request.format = "arrays";
  request.arrays = options;
  return request;
}

TEST(Arrays, NumPysFilesReadAsNumPyReadsThem) {
  ASSERT_GT(arrays_golden()["cases"].size(), 50u);
  for (const auto& c : arrays_golden()["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::string file = from_base64(c["file"]);
    for (const std::string& bytes : {file, gzip(file)}) {
      const Result<Array> array = read(bytes);
      ASSERT_TRUE(array.ok()) << array.error().message;
      EXPECT_EQ(array->shape().dims(), c["shape"].get<std::vector<int64_t>>());
      if (c.contains("floats")) {
        expect_same(array->to_floats(), golden_floats(c["floats"]));
      } else {
        for (size_t i = 0; i < c["texts"].size(); ++i) {
          EXPECT_EQ(*array->cell(static_cast<int64_t>(i), "x"), c["texts"][i].get<std::string>());
        }
      }
    }
  }
}

TEST(Arrays, BytesComeInRowMajorOrder) {
  const std::string header = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}";
  EXPECT_EQ((*read(npy_with(header, "adbecf"))).to_floats(),
            (std::vector<float>{'a', 'b', 'c', 'd', 'e', 'f'}));
  Result<Array> array = read(npy_with(header, "adbecf"));
  EXPECT_EQ(std::move(*array).take_bytes(), (std::vector<uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
}

TEST(Arrays, PickledObjectsAreRefusedByName) {
  const std::map<std::string, std::string> expected = {
      {"objects", "Python objects, which only unpickling"},
      {"structured", "structured type"},
      {"complex64", "complex numbers"},
      {"complex128", "complex numbers"},
      {"long double", "'<f16'"},
      {"dates", "dates"},
      {"spans", "time spans"},
      {"void", "structured type or raw bytes"}};
  ASSERT_EQ(arrays_golden()["refused"].size(), expected.size());
  for (const auto& [name, file] : arrays_golden()["refused"].items()) {
    const auto array = read(from_base64(file));
    ASSERT_FALSE(array.ok()) << name;
    EXPECT_NE(array.error().message.find(expected.at(name)), std::string::npos)
        << array.error().message;
    EXPECT_EQ(array.error().reason, "DATASET_INVALID");
  }
}

TEST(Arrays, DamagedHeadersAreRefused) {
  const auto message = [](const std::string& header) {
    const auto array = parse_npy_header(header, "inputs");
    return array.ok() ? "" : array.error().message;
  };
  for (const char* good : {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n",
                           "{\"shape\":(3,4),\"descr\":\"<f4\",\"fortran_order\":True}",
                           "{'descr':'=f4','fortran_order':False,'shape':(3L,)}",
                           "{'descr':'<f4','fortran_order':False,'shape':()}"}) {
    EXPECT_EQ(message(good), "") << good;
  }
  for (const char* bad :
       {"", "{", "{}", "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)", "__import__('os')",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)} x",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, -4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2**3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [3]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (3, 4)}",
        "{'descr': '<f4\\'', 'fortran_order': False, 'shape': (3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), 'more': 1}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (3, 4)}"}) {
    EXPECT_TRUE(message(bad).starts_with("inputs: the NPY header is damaged")) << bad;
  }
  EXPECT_EQ(message("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}"),
            "inputs: sizes [4611686018427387904, 4] are too large");
  for (const char* type : {"<f3", "<i16", "f", "", "<", "?2", "<U0", "|S99999999"}) {
    EXPECT_NE(
        message("{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (1,)}")
            .find("expected booleans, whole numbers"),
        std::string::npos)
        << type;
  }
  std::string many = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (int i = 0; i < 33; ++i) many += "1,";
  EXPECT_TRUE(message(many + ")}").starts_with("inputs: the NPY header is damaged"));
}

TEST(Arrays, WrongSizesAndTruncatedFilesAreRefused) {
  const std::string whole = f4({1, 2, 3, 4}, "(2, 2)");
  ASSERT_TRUE(read(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read(whole.substr(0, size)).ok()) << size;
    EXPECT_FALSE(read(gzip(whole.substr(0, size))).ok()) << size;
  }
  EXPECT_EQ(read(whole + "x").error().message,
            "inputs: the header promises [2, 2], 16 bytes, but the file has more");
  EXPECT_EQ(read(f4({1, 2, 3, 4}, "(3, 2)")).error().message,
            "inputs: the header promises [3, 2], 24 bytes, but there are only 16");
  // The header promises far more than the file can contain; it is refused before memory is
  // allocated.
  EXPECT_NE(read(f4({1}, "(1000000000,)")).error().message.find("but there are only 4"),
            std::string::npos);
  EXPECT_FALSE(read(gzip(f4({1}, "(1000000,)"))).ok());
  EXPECT_EQ(read(f4({1}, "(1000000000000,)")).error().reason, "DATASET_TOO_LARGE");
  std::string wrong = whole;
  wrong[6] = 4;
  EXPECT_EQ(read(wrong).error().message, "inputs: NPY version 4.0, expected 1.0, 2.0 or 3.0");
  EXPECT_EQ(read("a,b\n1,2\n").error().message,
            "inputs: not an NPY file (it does not begin with \\x93NUMPY)");
  std::string long_header = whole;
  long_header[6] = 2;
  long_header.replace(8, 2, std::string("\xff\xff\xff\x7f", 4));
  EXPECT_NE(read(long_header).error().message.find("an NPY header of 2147483647 bytes"),
            std::string::npos);
}

TEST(Arrays, PackagesOfSeveralArraysMakeTheSameDataset) {
  ArraysOptions options;
  options.inputs = "x";
  options.targets = "y";
  const std::vector<float> x = golden_floats(arrays_golden()["x"]);
  for (const auto& package : arrays_golden()["packages"]) {
    SCOPED_TRACE(package["name"].get<std::string>());
    const std::string file = from_base64(package["file"]);
    const IngestedFiles d(arrays(options), {{"data", file}});
    ASSERT_TRUE(d.ok()) << d.message();
    EXPECT_EQ(d->schema().target.classes, (std::vector<std::string>{"1", "2", "3"}));
    EXPECT_EQ(d->schema().columns.size(), 2u);
    EXPECT_EQ(d->schema().columns[1].name, "c1");
    EXPECT_EQ(d->schema().columns[1].missing_count, 1);  // x[1, 1] is NaN
    expect_same({d->train().numeric.begin(), d->train().numeric.end()}, x);
    EXPECT_EQ(d->train().target_class[0], 2);
    // A file truncated anywhere is refused and leaves nothing behind.
    for (size_t size = 0; size < file.size(); size += 7) {
      EXPECT_FALSE(IngestedFiles(arrays(options), {{"data", file.substr(0, size)}}).ok()) << size;
    }
  }
}

TEST(Arrays, EveryTypeOfSafetensorsReadsAsPyTorchReadsIt) {
  const auto& package = arrays_golden()["packages"][2];
  const TemporaryFolder folder;
  const auto path = folder.write("file", from_base64(package["file"]));
  std::vector<std::string> names;
  for (const auto& [name, values] : package["floats"].items()) names.push_back(name);
  ASSERT_GE(names.size(), 15u);
  Result<ArrayFile> file = ArrayFile::read(path, "data", names);
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto array = file->take(name);
    ASSERT_TRUE(array.ok()) << array.error().message;
    expect_same(array->to_floats(), golden_floats(package["floats"][name]));
  }
  EXPECT_TRUE(
      file->take("z").error().message.starts_with("data: has no array 'z'; it has 'uint64', "))
      << file->take("z").error().message;
  const std::string f8 = R"({"inputs":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(f8.size());
  EXPECT_TRUE(IngestedFiles(arrays(), {{"data", bytes + f8 + "x"}})
                  .message()
                  .starts_with("data: array 'inputs': elements of type F8_E4M3, expected"));
}

TEST(Arrays, ImagesOfBytesStayBytes) {
  const IngestedFiles d(arrays(),
                        {{"inputs", u1("abcdefgh", "(2, 1, 2, 2)")},
                         {"targets", u1(std::string("\5\7", 2), "(2, 1)")},
                         {"test_inputs", u1("wxyz", "(1, 1, 2, 2)")},
                         {"test_targets", npy("<f8", "(1,)", std::string(6, '\0') + "\x14\x40")}});
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& s = d->schema();
  EXPECT_EQ(s.image, Shape({1, 2, 2}));
  EXPECT_EQ(s.image_dtype, DType::kU8);
  EXPECT_EQ(d->train().image_u8[5], 'f');
  EXPECT_EQ(d->train().image_sums[0], 'a' + 'b' + 'c' + 'd');
  EXPECT_EQ(d->test().image_u8[0], 'w');
  EXPECT_EQ(d->test().target_class[0], 0);  // the test set's label 5.0 equals the class 5
  EXPECT_EQ(s.statistics->channels[0].max, 'h');
  const IngestedFiles f(arrays(), {{"inputs", f4({1, 2, 3, 4, 5, 6, 7, 8.5f}, "(2, 2, 2)")},
                                   {"targets", u1(std::string("\0\1", 2), "(2,)")}});
  ASSERT_TRUE(f.ok()) << f.message();
  EXPECT_EQ(f->schema().image_dtype, DType::kF32);
  EXPECT_EQ(f->train().image_f32[7], 8.5f);
  const auto rows = parse_raw_rows(f->schema(), "csv", "1,2,3,4\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->image_f32[3], 4);
}

TEST(Arrays, RowsToPredictAreCsvWithTheColumnsNames) {
  const IngestedFiles d(
      arrays(), {{"inputs", f4({1, 2, 3, 4}, "(2, 2)")}, {"targets", f4({0.5f, 1}, "(2,)")}});
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().target.kind, TargetSchema::Kind::kNumeric);
  for (const char* csv : {"c0,c1\n1,2\n", "c1,c0\n2,1\n", "1,2\n", "1,2,9\n"}) {
    const auto rows = parse_raw_rows(d->schema(), "csv", csv);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    EXPECT_EQ(rows->numeric, (std::vector<float>{1, 2}));
  }
  const IngestedFiles one(arrays(),
                          {{"inputs", f4({1, 2}, "(2,)")}, {"targets", f4({0.5f, 1}, "(2, 1)")}});
  ASSERT_TRUE(one.ok()) << one.message();
  EXPECT_EQ(one->schema().columns.size(), 1u);
}

TEST(Arrays, TargetsAreInterpretedAsInCsv) {
  const std::string x = f4({1, 2, 3}, "(3, 1)");
  const auto classes = [&](const std::string& targets, const std::string& kind = "") {
    ArraysOptions options;
    options.target_kind = kind;
    const IngestedFiles d(arrays(options), {{"inputs", x}, {"targets", targets}});
    EXPECT_TRUE(d.ok()) << d.message();
    if (!d.ok()) return std::vector<std::string>{"refused"};
    if (d->schema().target.kind == TargetSchema::Kind::kNumeric) {
      return std::vector<std::string>{"numeric"};
    }
    return d->schema().target.classes;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(classes(npy("|b1", "(3,)", std::string("\1\0\1", 3))), (Names{"false", "true"}));
  EXPECT_EQ(classes(npy("|b1", "(3,)", std::string("\1\0\1", 3)), "numeric"), Names{"numeric"});
  EXPECT_EQ(classes(npy("|i1", "(3,)", "\xff\x0a\x02")), (Names{"-1", "2", "10"}));
  EXPECT_EQ(classes(npy("|S2", "(3,)", "caatb\0"s)), (Names{"at", "b", "ca"}));
  EXPECT_EQ(classes(npy("|S1", "(3,)", "321")), (Names{"1", "2", "3"}));
  EXPECT_EQ(classes(npy("|S1", "(3,)", "321"), "numeric"), Names{"numeric"});
  EXPECT_EQ(classes(f4({1, 2, 1}, "(3,)")), (Names{"1", "2"}));
  EXPECT_EQ(classes(f4({1, 2.5f, 1}, "(3,)")), Names{"numeric"});
  EXPECT_EQ(classes(f4({1, 2.5f, 1}, "(3,)"), "class"), (Names{"1", "2.5"}));
  EXPECT_EQ(classes(f4({1, 2, 1}, "(3,)"), "numeric"), Names{"numeric"});
}

TEST(Arrays, TheTestShareIsDrawnOfEachClass) {
  std::vector<float> x;
  std::string y;
  for (int i = 0; i < 20; ++i) {
    x.push_back(static_cast<float>(i));
    y += static_cast<char>(i % 4 == 0);
  }
  ArraysOptions options;
  options.test_share = 0.2;
  options.seed = 3;
  const auto make = [&] {
    return IngestedFiles(arrays(options),
                         {{"inputs", f4(x, "(20,)")}, {"targets", u1(y, "(20,)")}});
  };
  const IngestedFiles d = make();
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().test_rows, 4);
  EXPECT_EQ(std::ranges::count(d->test().target_class, 1), 1);
  std::vector<float> all(d->train().numeric.begin(), d->train().numeric.end());
  EXPECT_TRUE(std::ranges::is_sorted(all));
  for (int64_t i = 0; i < d->test().rows; ++i) {  // each test row keeps its own target
    const float value = d->test().numeric[static_cast<size_t>(i)];
    EXPECT_EQ(d->test().target_class[static_cast<size_t>(i)], std::fmod(value, 4.0f) == 0 ? 1 : 0);
    all.push_back(value);
  }
  std::ranges::sort(all);
  EXPECT_EQ(all, x);
  options.seed = 4;
  const IngestedFiles other = make();
  EXPECT_FALSE(std::ranges::equal(other->test().numeric, d->test().numeric));
  options.target_kind = "numeric";
  EXPECT_EQ(make()->schema().test_rows, 4);
  options.test_share = 0.95;
  EXPECT_TRUE(make().message().starts_with("arrays.test_share: 0.950000 is out of range"));
}

TEST(Arrays, ATestSetMayBeArraysOfTheSameFileOrAnotherFile) {
  const std::string x = f4({1, 2}, "(2, 1)"), y = u1(std::string("\0\1", 2), "(2,)");
  const auto npz = [](const std::vector<ArchiveFile>& files) { return archive_of(files, "zip"); };
  const std::string own = npz({{"inputs.npy", x}, {"targets.npy", y}});
  const std::string beside = npz({{"inputs.npy", x},
                                  {"targets.npy", y},
                                  {"test_inputs.npy", f4({7}, "(1, 1)")},
                                  {"test_targets.npy", u1("\1", "(1,)")}});
  const IngestedFiles d(arrays(), {{"data", beside}});
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->test().numeric[0], 7);
  EXPECT_EQ(d->test().target_class[0], 1);
  const IngestedFiles e(arrays(), {{"data", own}, {"test", own}});
  ASSERT_TRUE(e.ok()) << e.message();
  EXPECT_EQ(e->schema().test_rows, 2);
  EXPECT_TRUE(IngestedFiles(arrays(), {{"data", beside}, {"test", own}})
                  .message()
                  .starts_with("test: data already has a test set"));
  EXPECT_EQ(IngestedFiles(
                arrays(),
                {{"data", npz({{"inputs.npy", x}, {"targets.npy", y}, {"test_inputs.npy", x}})}})
                .message(),
            "data: has no array 'test_targets'; it has 'inputs', 'targets', 'test_inputs'");
  EXPECT_EQ(IngestedFiles(arrays(), {{"data", npz({{"x.npy", x}})}}).message(),
            "data: has no array 'inputs'; it has 'x'");
}

TEST(Arrays, MismatchesAreRefusedWithArrayAndIndex) {
  const std::string x = f4({1, 2, 3, 4}, "(2, 2)"), y = u1(std::string("\0\1", 2), "(2,)");
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::string far =
      npy("<f8", "(2,)", std::string(8, '\0') + "\xff\xff\xff\xff\xff\xff\xef\x7f");
  const struct {
    std::string inputs, targets, message;
  } cases[] = {
      {f4({1, 2, 3, inf}, "(2, 2)"), y, "inputs: [1, 1]: not a finite number of 32 bits"},
      {far, y, "inputs: [1]: not a finite number of 32 bits"},
      {f4({1, nan, 3, 4}, "(2, 1, 2)"), y,
       "inputs: [0, 0, 1]: NaN; missing values are not supported here"},
      {x, f4({1, nan}, "(2,)"), "targets: [1]: NaN; missing values are not supported here"},
      {x, u1(std::string("\0\1\1", 3), "(3,)"), "targets: 3 targets, expected 2 as for the inputs"},
      {x, u1(std::string("\0\1\1\1", 4), "(2, 2)"),
       "targets: shape [2, 2], expected [N] or [N, 1]"},
      {x, u1(std::string("\1\1", 2), "(2,)"), "targets: a single class '1', expected at least 2"},
      {x, f4({1.5, 1.5}, "(2,)"),
       "targets: every target is 1.5, expected different numbers to predict"},
      {x, npy("|S1", "(2,)", "a\xff"), "targets: [1]: '\\xff' is not UTF-8 text"},
      {x, npy("|S1", "(2,)", "a\0"s), "targets: [1]: a class's name of 0 bytes, expected 1 to 256"},
      {x, npy("<U1", "(2,)", "a\0\0\0\0\xd8\0\0"s),
       "targets: [1]: a text with the number 55296, which is not a character"},
      {npy("|S1", "(2, 2)", "abcd"), y, "inputs: text, expected numbers"},
      {f4({1}, "()"), y, "inputs: shape [], expected [N, F]"},
      {f4({}, "(0, 2)"), y, "inputs: shape [0, 2] has no elements"},
      {f4({1, 2}, "(2, 1, 1, 1, 1)"), y, "inputs: shape [2, 1, 1, 1, 1], expected [N, F]"},
  };
  for (const auto& c : cases) {
    const IngestedFiles d(arrays(), {{"inputs", c.inputs}, {"targets", c.targets}});
    EXPECT_TRUE(d.message().starts_with(c.message)) << d.message();
  }
  const auto with_test = [&](const std::string& test_x, const std::string& test_y) {
    return IngestedFiles(
               arrays(),
               {{"inputs", x}, {"targets", y}, {"test_inputs", test_x}, {"test_targets", test_y}})
        .message();
  };
  EXPECT_EQ(with_test(f4({1, 2, 3}, "(1, 3)"), u1("\1", "(1,)")),
            "test_inputs: rows of [3], expected [2] as in the training data");
  EXPECT_EQ(with_test(f4({1, 2}, "(1, 2)"), u1("\2", "(1,)")),
            "test_targets: [0]: '2' is not a class of the training rows");
  EXPECT_TRUE(IngestedFiles(arrays(), {{"data", x}})
                  .message()
                  .starts_with("data: an NPY file, which contains one array"));
  EXPECT_TRUE(IngestedFiles(arrays(), {{"data", "1,2\n"}})
                  .message()
                  .starts_with("data: neither NPZ nor safetensors"));
  EXPECT_EQ(IngestedFiles(arrays(), {{"inputs", x}}).message(),
            "sources: role targets is required");
}

}  // namespace
}  // namespace trainyard
