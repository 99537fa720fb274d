// Measures how fast sources become a dataset, and a dataset batches. Each line also has an upper
// limit for this machine, measured in the same run: reading a file's bytes and finding its line
// ends for CSV, inflating them for gzip, copying as many bytes for the loader.
//
//   data_bench [FOLDER]    FOLDER: the tests' real data; default: TRAINYARD_TEST_DATA
//   data_bench --table FILE TARGET
//                          the rows of a CSV, parsed and as a whole ingest, by one thread and by
//                          one for each core; for tests/bench/table_ingest.py
//   data_bench --images FOLDER
//                          for train/CLASS/*.jpg in FOLDER: how many images a second are decoded
//                          into a dataset, and then augmented into batches; for
//                          tests/bench/image_pipeline.py
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "src/base/cores.h"
#include "src/base/philox.h"
#include "src/data/files/byte_source.h"
#include "src/data/load/loader.h"
#include "src/data/load/split.h"
#include "src/data/typed_dataset.h"
#include "tests/bench/process_facts.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

constexpr int kRepetitions = 5;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_of(const std::function<void()>& work) {
  double best = 1e300;
  for (int i = 0; i < kRepetitions; ++i) best = std::min(best, seconds_of(work));
  return best;
}

/// Returns the number of bytes of a source after decompression; with `lines` it also finds the line
/// ends, as a reader must.
int64_t scan(const fs::path& path, bool lines) {
  const auto source = open_file_source(path, "data").value();
  std::vector<char> chunk(1 << 20);
  int64_t bytes = 0;
  int64_t ends = 0;
  for (size_t n; (n = source->read(chunk).value()) > 0;) {
    bytes += static_cast<int64_t>(n);
    if (lines) ends += std::count(chunk.begin(), chunk.begin() + static_cast<int64_t>(n), '\n');
  }
  asm volatile("" : : "r"(ends));  // keeps the compiler from removing the unused count
  return bytes;
}

void bench_ingest(const char* name, const IngestRequest& request, const fs::path& folder) {
  int64_t bytes = 0;
  const double limit = best_of([&] {
    bytes = 0;
    for (const IngestSource& s : request.sources) bytes += scan(s.path, request.format == "csv");
  });
  int64_t rows = 0;
  const double seconds = best_of([&] {
    fs::remove_all(folder);
    const auto schema = ingest(request, folder, local_files());
    TRAINYARD_CHECK(schema.ok(), schema.error().message);
    rows = schema->train_rows + schema->test_rows;
  });
  std::printf("ingest   %-9s %9.0f rows/s %8.1f MB/s  %6.1f ms   limit %8.1f MB/s (%2.0f %%)\n",
              name, static_cast<double>(rows) / seconds, static_cast<double>(bytes) / seconds / 1e6,
              seconds * 1e3, static_cast<double>(bytes) / limit / 1e6, 100 * limit / seconds);
}

void bench_dataset(const fs::path& folder) {
  std::printf("open     %6.2f ms, with digest %6.1f ms\n",
              1e3 * best_of([&] { (void)Dataset::open(folder, false).value(); }),
              1e3 * best_of([&] { (void)Dataset::open(folder, true).value(); }));
  const Dataset d = Dataset::open(folder, false).value();
  std::vector<int64_t> rows;
  const double split = best_of([&] { rows = split_rows(d.train().rows, 0.1, 1).train; });
  const double permute = best_of([&] { (void)permutation(std::ssize(rows), 1, 2, 3); });
  Preprocessing p;
  const double fit = best_of([&] { p = fit_preprocessing(d.schema(), d.train(), rows); });
  std::printf("start    split %.2f ms, fit %.2f ms, an epoch's order %.2f ms\n", split * 1e3,
              fit * 1e3, permute * 1e3);

  Loader::Options options;
  options.batch_size = 64;
  constexpr int kSteps = 3000;
  for (const int threads : {1, 2}) {
    options.threads = threads;
    size_t floats = 0;
    const double seconds = best_of([&] {
      Loader loader(d.schema(), p, d.train(), rows, options);
      for (int i = 0; i < kSteps; ++i) floats = loader.next().input.size();
    });
    std::vector<float> from(floats, 1), to(floats);
    const double copy = best_of([&] {
      for (int i = 0; i < kSteps; ++i) {
        std::memcpy(to.data(), from.data(), floats * sizeof(float));
        asm volatile("" : : "g"(to.data()) : "memory");
      }
    });
    std::printf(
        "loader   batch 64, %d thread%s %9.0f samples/s   limit %9.0f samples/s (%2.0f %%)\n",
        threads, threads > 1 ? "s" : " ", kSteps * 64 / seconds, kSteps * 64 / copy,
        100 * copy / seconds);
  }
}

/// Measures the host's work for one step: making whole batches, and making only the row numbers
/// that it sends to a device with a resident dataset. Prints the seconds of one loader thread and
/// the bytes that are sent.
void bench_samples(const fs::path& folder) {
  const Dataset d = Dataset::open(folder, false).value();
  const std::vector<int64_t> rows = split_rows(d.train().rows, 0.1, 1).train;
  const Preprocessing p = fit_preprocessing(d.schema(), d.train(), rows);
  constexpr int kSteps = 2000;
  for (const bool augmented : {false, true}) {
    for (const bool samples : {false, true}) {
      Loader::Options options;
      options.batch_size = 64;
      options.samples = samples;
      if (augmented) {
        options.augmenter =
            Augmenter({RandomCrop{}, RandomHorizontalFlip{}, Cutout{}}, d.schema().image,
                      std::vector<float>(static_cast<size_t>(d.schema().image[0]), 0));
      }
      size_t bytes = 0;
      const double seconds = best_of([&] {
        Loader loader(d.schema(), p, d.train(), rows, options);
        for (int i = 0; i < kSteps; ++i) {
          const Batch& batch = loader.next();
          bytes = samples ? std::as_bytes(std::span(batch.samples)).size()
                          : batch.input_bytes().size() + batch.target_bytes().size();
        }
      });
      std::printf("step     batch 64%s, %s %8.1f us, %zu bytes sent\n",
                  augmented ? ", augmented" : "",
                  samples ? "its samples:" : "all of it:  ", 1e6 * seconds / kSteps, bytes);
    }
  }
}

/// Prints lines with the operation, threads, rows, and the wall and CPU seconds of the run with the
/// least CPU time, which other processes disturb less.
void bench_table(const char* what, int threads, const std::function<int64_t()>& work) {
  double wall = 0;
  double cpu = 1e300;
  int64_t rows = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    const double before = cpu_seconds();
    const double seconds = seconds_of([&] { rows = work(); });
    const double used = cpu_seconds() - before;
    if (used >= cpu) continue;
    cpu = used;
    wall = seconds;
  }
  std::printf("%s %d %lld %.4f %.4f\n", what, threads, static_cast<long long>(rows), wall, cpu);
}

fs::path make_folder() {
  std::string pattern = (fs::temp_directory_path() / "trainyard-bench-XXXXXX").string();
  return ::mkdtemp(pattern.data());
}

int run_table(const fs::path& file, const char* target) {
  const fs::path folder = make_folder();
  IngestRequest request = {"csv", {{"data", file}}, {}};
  request.csv.target = target;
  for (const int threads : {1, usable_cores()}) {
    request.threads.count = threads;
    bench_table("parse", threads, [&] {
      const auto data = read_csv_dataset(request.csv, file, {}, request.threads);
      TRAINYARD_CHECK(data.ok(), data.error().message);
      return data->train.rows;
    });
    bench_table("ingest", threads, [&] {
      fs::remove_all(folder / "d");
      const auto schema = ingest(request, folder / "d", local_files());
      TRAINYARD_CHECK(schema.ok(), schema.error().message);
      return schema->train_rows;
    });
  }
  fs::remove_all(folder);
  return 0;
}

/// Prints images decoded a second and images augmented a second. Uses random crops and flips,
/// batches of 128, two threads, and a whole ingest with digests and flushed files.
int run_images(const fs::path& images) {
  const fs::path folder = make_folder();
  int64_t rows = 0;
  const double decode = seconds_of([&] {
    const auto schema = ingest({"images", {{"data", images}}, {}}, folder / "d", local_files());
    TRAINYARD_CHECK(schema.ok(), schema.error().message);
    rows = schema->train_rows + schema->test_rows;
  });
  const Dataset d = Dataset::open(folder / "d", false).value();
  std::vector<int64_t> train = split_rows(d.train().rows, 0, 1).train;
  const Preprocessing p = fit_preprocessing(d.schema(), d.train(), train);
  Loader::Options options;
  options.batch_size = 128;
  options.threads = 2;
  options.augmenter = Augmenter({RandomCrop{}, RandomHorizontalFlip{}}, d.schema().image,
                                std::vector<float>(static_cast<size_t>(d.schema().image[0]), 0));
  Loader loader(d.schema(), p, d.train(), std::move(train), options);
  const int64_t steps = 4 * loader.steps_per_epoch();
  const double load = seconds_of([&] {
    for (int64_t i = 0; i < steps; ++i) (void)loader.next();
  });
  std::printf("%.1f %.1f\n", static_cast<double>(rows) / decode,
              static_cast<double>(steps * options.batch_size) / load);
  fs::remove_all(folder);
  return 0;
}

int run(const fs::path& data) {
  const fs::path folder = make_folder();
  CsvOptions price;
  price.target = "price";
  bench_ingest("diamonds", {"csv", {{"data", data / "tabular/diamonds.csv"}}, price},
               folder / "diamonds");
  const fs::path mnist = data / "mnist";
  bench_ingest("mnist",
               {"idx",
                {{"train_images", mnist / "train-images-idx3-ubyte.gz"},
                 {"train_labels", mnist / "train-labels-idx1-ubyte.gz"},
                 {"test_images", mnist / "t10k-images-idx3-ubyte.gz"},
                 {"test_labels", mnist / "t10k-labels-idx1-ubyte.gz"}},
                {}},
               folder / "mnist");
  bench_dataset(folder / "mnist");
  bench_samples(folder / "mnist");
  fs::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--table") {
    return trainyard::run_table(argv[2], argv[3]);
  }
  if (argc == 3 && std::string_view(argv[1]) == "--images") return trainyard::run_images(argv[2]);
  const char* folder = argc > 1 ? argv[1] : std::getenv("TRAINYARD_TEST_DATA");
  if (folder == nullptr || !std::filesystem::is_directory(folder)) {
    std::fprintf(stderr, "no folder of real data: give it, or set TRAINYARD_TEST_DATA\n");
    return 2;
  }
  return trainyard::run(folder);
}
