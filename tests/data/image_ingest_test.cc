// Tests of folders and archives of images. They fail if images are in the wrong row, class or
// partition, the layout of folders is guessed wrong, or forbidden content of an archive is accepted
// (B35).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>

#include "src/base/sha256.h"
#include "src/data/image/image_decoding.h"
#include "src/data/image/image_listing.h"
#include "src/data/preprocessing.h"
#include "src/data/problems.h"
#include "tests/data/data_samples.h"
#include "tests/data/faulty_files.h"
#include "tests/data/image_samples.h"

namespace trainyard {
namespace {

using FileKind = ArchiveFile::Kind;
namespace fs = std::filesystem;

/// Ingests a folder or an archive of images and opens the result.
class Ingested {
 public:
  Ingested(const fs::path& data, const ImagesOptions& options = {}, const fs::path& test = {}) {
    IngestRequest request;
    request.format = "images";
    request.images = options;
    request.sources.push_back({"data", data});
    if (!test.empty()) request.sources.push_back({"test", test});
    UnsyncedFiles files;
    const Result<DatasetSchema> schema = ingest(request, folder_ / "dataset", files);
    if (schema.ok()) {
      dataset_ = Dataset::open(folder_ / "dataset", true);
    } else {
      dataset_ = schema.error();
    }
  }
  /// Ingests an archive from its bytes.
  static Ingested archive(const std::string& bytes, const ImagesOptions& options = {}) {
    const TemporaryFolder folder;
    return Ingested(folder.write("archive", bytes), options);
  }
  static Ingested of(const std::vector<ArchiveFile>& files, const ImagesOptions& options = {}) {
    return archive(archive_of(files), options);
  }
  bool ok() const { return dataset_->ok(); }
  const Dataset& operator*() const { return dataset_->value(); }
  const Dataset* operator->() const { return &dataset_->value(); }
  const Error& error() const { return dataset_->error(); }
  std::string message() const { return ok() ? "" : error().message; }
  std::string digest() const { return sha256_file(folder_ / "dataset/data.safetensors").value(); }
  /// Returns the value of the first pixel of each row.
  std::vector<int> firsts(const Partition& p) const {
    std::vector<int> values;
    const auto step = static_cast<size_t>((**this).schema().image.elements());
    for (size_t i = 0; i < p.image_u8.size(); i += step) values.push_back(p.image_u8[i]);
    return values;
  }

 private:
  TemporaryFolder folder_;
  std::optional<Result<Dataset>> dataset_;
};

using Ints = std::vector<int>;
using Labels = std::vector<int32_t>;
Labels labels(std::span<const int32_t> s) { return {s.begin(), s.end()}; }

ImagesOptions sized(int64_t height, int64_t width, const std::string& resize = "stretch") {
  ImagesOptions o;
  o.size = {height, width};
  o.resize = resize;
  return o;
}

TEST(ImageIngest, AFolderAndItsArchivesMakeTheSameDataset) {
  const TemporaryFolder folder;
  write_files(folder.path(), pets());
  const Ingested from_folder(folder.path());
  ASSERT_TRUE(from_folder.ok()) << from_folder.message();
  EXPECT_EQ(from_folder->schema().image, Shape({1, 2, 2}));
  EXPECT_EQ(from_folder->schema().target.classes, (std::vector<std::string>{"cats", "dogs"}));
  EXPECT_EQ(from_folder.firsts(from_folder->train()), (Ints{10, 20, 30, 40}));
  EXPECT_EQ(labels(from_folder->train().target_class), (Labels{0, 0, 1, 1}));
  EXPECT_EQ(from_folder->train().image_sums[2], 4 * 20);
  EXPECT_EQ(from_folder->train().image_sums[3], 4 * 20 * 20);
  EXPECT_EQ(from_folder->schema().test_rows, 0);

  std::vector<ArchiveFile> other_order = pets();
  std::reverse(other_order.begin(), other_order.end());
  std::vector<ArchiveFile> below_a_folder = pets();
  for (ArchiveFile& file : below_a_folder) file.path = "./photos/" + file.path;
  below_a_folder.insert(below_a_folder.begin(), {"photos/", "", FileKind::kFolder});
  std::vector<ArchiveFile> with_litter = pets();
  with_litter.push_back({"cats/.DS_Store", "x"});
  with_litter.push_back({"__MACOSX/cats/._1.png", "x"});
  with_litter.push_back({"cats/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg", "x"});
  with_litter.push_back({"dogs/Thumbs.db", "x"});
  with_litter.push_back({"#recycle/9.png", grey_png(9)});
  for (const auto& files : {pets(), other_order, below_a_folder, with_litter}) {
    for (const char* format : {"ustar", "pax", "gnutar", "zip"}) {
      for (const char* filter : {"", "gzip", "xz", "zstd"}) {
        if (format == std::string("zip") && *filter != 0) continue;
        const Ingested d = Ingested::archive(archive_of(files, format, filter));
        ASSERT_TRUE(d.ok()) << format << filter << d.message();
        EXPECT_EQ(d.digest(), from_folder.digest()) << format << filter;
      }
    }
  }
}

TEST(ImageIngest, PartitionsAreFolders) {
  std::vector<ArchiveFile> files;
  for (const ArchiveFile& file : pets()) files.push_back({"train/" + file.path, file.content});
  files.push_back({"test/dogs/9.png", grey_png(90)});
  const Ingested d = Ingested::of(files);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d.firsts(d->train()), (Ints{10, 20, 30, 40}));
  EXPECT_EQ(d.firsts(d->test()), (Ints{90}));
  EXPECT_EQ(labels(d->test().target_class), (Labels{1}));
  for (const char* name : {"val", "valid"}) {
    files.back().path = std::string(name) + "/dogs/9.png";
    EXPECT_EQ(Ingested::of(files)->schema().test_rows, 1) << name;
  }
  files.push_back({"test/cats/8.png", grey_png(80)});  // then valid/ is ignored, with a message
  const Ingested both = Ingested::of(files);
  EXPECT_EQ(both.firsts(both->test()), (Ints{80}));
  EXPECT_EQ(both->schema().skipped_files, 1);
  files.push_back({"extra/cats/7.png", grey_png(70)});
  EXPECT_EQ(
      Ingested::of(files).message(),
      "data: 'extra/cats/7.png': is outside of train/, expected it in train/ or test/ (or val/, "
      "valid/)");
  files.back() = {"test/birds/1.png", grey_png(1)};
  EXPECT_EQ(Ingested::of(files).message(),
            "data: 'test/birds/1.png': the class 'birds' has no image to train");
}

TEST(ImageIngest, ATestSetComesFromAPathOrAShare) {
  const TemporaryFolder folder;
  write_files(folder / "train", pets());
  write_files(folder / "held", {{"cats/5.png", grey_png(50)}});
  const Ingested by_path(folder / "train", {}, folder / "held");
  ASSERT_TRUE(by_path.ok()) << by_path.message();
  EXPECT_EQ(by_path.firsts(by_path->test()), (Ints{50}));
  EXPECT_EQ(by_path->schema().train_rows, 4);

  ImagesOptions half;
  half.test_share = 0.5;
  EXPECT_EQ(Ingested(folder / "train", half, folder / "held").error().violations[0].field,
            "images.test_share");
  const Ingested by_share(folder / "train", half);
  ASSERT_TRUE(by_share.ok()) << by_share.message();
  EXPECT_EQ(labels(by_share->train().target_class), (Labels{0, 1}));  // half of each class
  EXPECT_EQ(labels(by_share->test().target_class), (Labels{0, 1}));
  EXPECT_EQ(by_share.digest(), Ingested(folder / "train", half).digest());
  bool differs = false;
  for (half.seed = 1; half.seed < 8; ++half.seed) {
    differs |= Ingested(folder / "train", half).digest() != by_share.digest();
  }
  EXPECT_TRUE(differs);
  half.test_share = 0.9;  // at least one row of each class stays
  EXPECT_EQ(labels(Ingested(folder / "train", half)->train().target_class), (Labels{0, 1}));
}

TEST(ImageIngest, LabelsComeFromACsv) {
  std::vector<ArchiveFile> files = {{"set/a.png", grey_png(1)},
                                    {"set/b/c.png", grey_png(2)},
                                    {"set/d.png", grey_png(3)},
                                    {"set/notes.txt", "x"},
                                    {"set/labels.csv", "who,file,class\nme,d.png,x\nme,a.png,y\n"}};
  ImagesOptions options;
  options.labels = "labels.csv";
  const Ingested d = Ingested::of(files, options);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d.firsts(d->train()), (Ints{1, 3}));
  EXPECT_EQ(labels(d->train().target_class), (Labels{1, 0}));
  EXPECT_EQ(d->schema().skipped_files, 2);  // b/c.png has no label, and notes.txt is no image

  files.back().content = "file,number\na.png,1.5\nb/c.png,-2\nd.png,7\n";
  const Ingested numbers = Ingested::of(files, options);
  ASSERT_TRUE(numbers.ok()) << numbers.message();
  EXPECT_EQ(numbers->train().target_numeric[1], -2.0f);
  EXPECT_EQ(numbers->schema().target.kind, TargetSchema::Kind::kNumeric);

  const auto message = [&](const std::string& csv) {
    files.back().content = csv;
    return Ingested::of(files, options).message();
  };
  const std::string what = "data: 'set/labels.csv': ";
  EXPECT_EQ(
      message("file,klass\na.png,x\n"),
      "data: 'set/labels.csv': its header must name a column `file`, and `class` or `number`");
  EXPECT_EQ(message("file,class\nz.png,x\n"), what + "row 1 (line 2): there is no image 'z.png'");
  EXPECT_EQ(message("file,class\na.png,x\na.png,y\n"),
            what + "row 2 (line 3): the image 'a.png' already has a label");
  EXPECT_EQ(message("file,number\na.png,x\n"), what + "row 1 (line 2): 'x' is not a number");
  EXPECT_EQ(message("file,class\na.png\n"),
            what + "row 1 (line 2): 1 fields, expected 2 as in the header");
  options.labels = "other.csv";
  EXPECT_EQ(message("").substr(0, 32), "images.labels: 'other.csv' is no");
}

TEST(ImageIngest, ColourAndSizeFollowFromTheImages) {
  std::vector<ArchiveFile> files = pets();
  files.push_back({"dogs/3.png", colour_png(1, 2, 3)});
  const Ingested d = Ingested::of(files);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().image, Shape({3, 2, 2}));
  EXPECT_EQ(d->train().image_u8[4 * 12 + 8], 3);  // the blue channel of the last image
  EXPECT_EQ(d->train().image_u8[11], 10);         // a gray pixel in each channel
  ImagesOptions grey;
  grey.channels = 1;
  EXPECT_EQ(Ingested::of(files, grey)->schema().image, Shape({1, 2, 2}));

  files.push_back({"dogs/4.png", grey_png(4, 3, 5)});
  const Ingested mixed = Ingested::of(files);
  EXPECT_EQ(mixed.message(),
            "data: 'cats/1.png': 2 x 2 pixels, as 5 of the images; 2 sizes differ: give "
            "images.size: [height, width] (the first of 2 problems)");
  EXPECT_EQ(mixed.error().violations[1].field, "data: 'dogs/4.png'");
  for (const char* mode : {"stretch", "crop", "pad"}) {
    const Ingested resized = Ingested::of(files, sized(4, 4, mode));
    ASSERT_TRUE(resized.ok()) << resized.message();
    EXPECT_EQ(resized->schema().image, Shape({3, 4, 4}));
    EXPECT_EQ(name_of(resized->schema().resize), mode);
    const auto restored = parse_schema(schema_text(resized->schema()));
    EXPECT_EQ(restored->resize, resized->schema().resize);
  }
}

TEST(ImageIngest, OptionsAreChecked) {
  const auto field = [](const ImagesOptions& options) {
    const Ingested d = Ingested::of(pets(), options);
    return d.ok() ? "" : d.error().violations.at(0).field;
  };
  for (const std::vector<int64_t>& size :
       {std::vector<int64_t>{2}, {0, 2}, {2, -1}, {2, 16385}, {2, 2, 2}}) {
    ImagesOptions o;
    o.size = size;
    EXPECT_EQ(field(o), "images.size");
  }
  EXPECT_EQ(field(sized(2, 2, "none")), "images.resize");
  EXPECT_EQ(field(sized(2, 2, "zoom")), "images.resize");
  ImagesOptions o;
  for (const int64_t channels : {-1, 2, 4}) {
    o.channels = channels;
    EXPECT_EQ(field(o), "images.channels");
  }
  o = {};
  for (const double share : {-0.1, 0.91, std::nan("")}) {
    o.test_share = share;
    EXPECT_EQ(field(o), "images.test_share");
  }
}

TEST(ImageIngestB39, AnInvalidDatasetIsRefusedWithTheFilesName) {
  const auto message = [](const std::vector<ArchiveFile>& files) {
    return Ingested::of(files).message();
  };
  EXPECT_EQ(message({}).substr(0, 5), "data:");
  EXPECT_EQ(message({{"a/b.txt", "x"}}),
            "data: there are no JPEG or PNG files (.jpg, .jpeg, .png)");
  EXPECT_EQ(
      message({{"cats/1.png", grey_png(1)}, {"cats/2.png", grey_png(2)}}),
      "data: every image to train is of the class 'cats', expected 2 to 65536 classes, each a "
      "folder or a name in the labels");
  EXPECT_EQ(message({{"1.png", grey_png(1)}, {"cats/2.png", grey_png(2)}}),
            "data: '1.png': is not in a class's folder; name a CSV of labels in images.labels if "
            "classes are not folders");
  auto files = pets();
  files.push_back({"dogs/text.JPG", "hello"});
  const std::string remedy = "; replace or remove it, or leave it out with images.damaged: skip";
  EXPECT_EQ(message(files),
            "data: 'dogs/text.JPG': its content is neither a JPEG nor a PNG image" + remedy);
  files.back() = {"dogs/a.gif", "GIF89a"};
  EXPECT_EQ(message(files),
            "data: 'dogs/a.gif': an image in an unsupported format, expected JPEG or PNG");
  files.back() = {"dogs/README.md", "about dogs"};
  EXPECT_EQ(Ingested::of(files)->schema().skipped_files, 1);
  files.back() = {
      "b\xff"
      "d/1.png",
      grey_png(1)};
  EXPECT_EQ(message(files), "data: 'b\\xffd/1.png': the class 'b\\xffd' is not UTF-8");
  files.back() = {std::string(300, 'c') + "/1.png", grey_png(1)};
  EXPECT_NE(Ingested::archive(archive_of(files, "pax")).message().find("300 bytes, expected 1 to"),
            std::string::npos);
  const TemporaryFolder empty;
  EXPECT_EQ(Ingested(empty.path()).message(),
            "data: there are no JPEG or PNG files (.jpg, .jpeg, .png)");
}

TEST(ImageIngest, NamesBeyondAsciiAreClasses) {
  const std::string bird = "V\xc3\xb6gel";
  auto files = pets();
  files.push_back({bird + "/1.png", grey_png(1)});
  for (const char* format : {"ustar", "gnutar", "zip"}) {
    const Ingested d = Ingested::archive(archive_of(files, format));
    ASSERT_TRUE(d.ok()) << format << d.message();
    EXPECT_EQ(d->schema().target.classes[0], bird) << format;
  }
}

TEST(ImageIngestB35, UnsafeArchivesAreRefused) {
  struct Case {
    ArchiveFile file;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"../evil.png", "x"}, "data: '../evil.png': a path that leaves the archive ('..')"},
      {{"cats/../../evil.png", "x"},
       "data: 'cats/../../evil.png': a path that leaves the archive ('..')"},
      {{"/etc/passwd", "x"},
       "data: '/etc/passwd': an absolute path, expected one within the archive"},
      {{"cats\\1.png", "x"}, "data: 'cats\\1.png': a path with a backslash"},
      {{"cats/3.png", "/etc/passwd", FileKind::kLink},
       "data: 'cats/3.png': a link, a device or a file with holes, expected files and folders"},
      {{"cats/3.png", "cats/1.png", FileKind::kHardLink},
       "data: 'cats/3.png': a link, a device or a file with holes, expected files and folders"},
      {{"cats/3.png", "", FileKind::kPipe},
       "data: 'cats/3.png': a link, a device or a file with holes, expected files and folders"},
      {{"cats/1.png", grey_png(9)}, "data: 'cats/1.png': the archive contains this path twice"},
  };
  for (const Case& c : cases) {
    auto files = pets();
    files.push_back(c.file);
    const Ingested d = Ingested::of(files);
    EXPECT_EQ(d.message(), c.message);
    ASSERT_FALSE(d.ok());
    EXPECT_EQ(d.error().reason, "ARCHIVE_UNSAFE");
  }
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "d/";
  auto files = pets();
  files.push_back({deep + "1.png", grey_png(9)});
  EXPECT_EQ(Ingested::of(files).error().reason, "ARCHIVE_UNSAFE");
}

TEST(ImageIngestB35, BombsAreRefused) {
  auto files = pets();
  files.push_back({"zeros.bin", std::string(80 << 20, '\0')});
  for (const char* filter : {"gzip", "xz", "zstd"}) {
    const Ingested d = Ingested::archive(archive_of(files, "ustar", filter));
    ASSERT_FALSE(d.ok()) << filter;
    EXPECT_EQ(d.error().reason, "ARCHIVE_UNSAFE") << d.message();
  }
  files.back().path = "dogs/zeros.png";  // a file name that would be read
  EXPECT_EQ(Ingested::archive(archive_of(files, "zip")).error().reason, "ARCHIVE_UNSAFE");
  const std::string once = archive_of(pets(), "ustar", "gzip");
  EXPECT_EQ(Ingested::archive(gzip(once)).message(), "data: compressed more than once");
}

TEST(ImageIngestB35, EveryCutOfAnArchiveIsRefused) {
  std::vector<ArchiveFile> few = {{"a/1.png", grey_png(1)}, {"b/1.png", grey_png(2)}};
  for (const char* filter : {"", "gzip", "xz", "zstd"}) {
    const std::string whole = archive_of(few, "ustar", filter);
    // A tar file ends with two blocks of zeros; readers do not need the second one.
    const size_t step = *filter == 0 ? 61 : 7;
    const size_t end = *filter == 0 ? whole.size() - 1024 : whole.size();
    for (size_t bytes = 0; bytes < end; bytes += step) {
      const Ingested cut = Ingested::archive(whole.substr(0, bytes));
      ASSERT_FALSE(cut.ok()) << filter << " cut to " << bytes << " of " << whole.size();
      EXPECT_TRUE(cut.message().starts_with("data: ")) << cut.message();
    }
  }
  const std::string at_a_border = archive_of(few).substr(0, 2048);
  EXPECT_EQ(Ingested::archive(at_a_border).message(),
            "data: the archive is cut short: its end mark is missing");
  const std::string zip = archive_of(few, "zip");
  for (size_t bytes = 0; bytes < zip.size(); bytes += 3) {
    ASSERT_FALSE(Ingested::archive(zip.substr(0, bytes)).ok()) << bytes;
  }
}

TEST(ImageIngest, TheFirstProblemsAreReportedInOrderForAnyThreads) {
  std::vector<ArchiveFile> files;
  for (int i = 0; i < 60; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "%s/%02d.png", i % 2 == 0 ? "a" : "b", i);
    std::string file = grey_png(1);
    file[file.size() - 20] ^= 1;  // breaks the pixels' checksum, which the header lacks
    files.push_back({name, file});
  }
  for (int again = 0; again < 3; ++again) {
    const Ingested d = Ingested::of(files);
    ASSERT_FALSE(d.ok());
    ASSERT_EQ(d.error().violations.size(), 16u);
    EXPECT_EQ(d.error().violations[0].field, "data: 'a/00.png'");
    EXPECT_EQ(d.error().violations[15].field, "data: 'b/15.png'");
    EXPECT_NE(d.message().find("(the first of at least 16 damaged images)"), std::string::npos)
        << d.message();
  }
}

// Fails if reading continues after the 16th problem: 160 small images that claim many pixels kept
// a worker busy for 44 s.
TEST(ImageDecoding, EndsAtTheLimitOfDamagedImages) {
  const TemporaryFolder folder;
  std::vector<ArchiveFile> files;
  for (int i = 0; i < 40; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "a/%02d.png", i);
    files.push_back({name, grey_png(1) + std::string(size_t{1} << 20, '.')});  // a batch each
  }
  write_files(folder.path(), files);
  std::vector<ImageListing> listings;
  Result<ImageListing> listed = list_images({}, folder.path(), "data", false);
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  listings.push_back(std::move(listed).value());
  std::atomic<int> used{0};
  const ImageUse use = [&](const ListedImage&, std::string_view, const std::string& place) {
    ++used;
    return Status(dataset_error(place, "damaged"));
  };
  ASSERT_TRUE(decode_images(listings, use, 2).ok());
  EXPECT_LT(used, 40) << "the images beyond those that wait for a thread are not read";
  std::vector<std::string> damaged;
  for (const ListedImage& image : listings[0].images) {
    if (!image.damage.empty()) damaged.push_back(image.path);
  }
  EXPECT_EQ(damaged, (std::vector<std::string>{"a/00.png", "a/01.png"}));
}

/// Returns 100 images, of which five are damaged: three cut, one empty, one HTML page.
std::vector<ArchiveFile> some_damaged() {
  std::vector<ArchiveFile> files;
  for (int i = 0; i < 100; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "%s/%02d.png", i % 2 == 0 ? "a" : "b", i);
    files.push_back({name, grey_png(static_cast<uint8_t>(i))});
  }
  for (const size_t i : {10u, 31u, 90u}) {
    files[i].content.resize(files[i].content.size() - 20);
  }
  files[21].content = "";
  files[44].content = "<!DOCTYPE html><html>Not found</html>";
  return files;
}

TEST(ImageIngestR5, AllDamagedImagesAreNamedAtOnce) {
  const Ingested d = Ingested::of(some_damaged());
  ASSERT_FALSE(d.ok());
  std::vector<std::string> found;
  for (const FieldViolation& v : d.error().violations) {
    found.push_back(v.field + ": " + v.description);
  }
  const std::string cut = "the PNG image cannot be read: the image is cut short";
  EXPECT_EQ(found,
            (std::vector<std::string>{
                "data: 'a/10.png': " + cut,
                "data: 'a/44.png': its content is an HTML page, as servers send for a missing "
                "image, expected a JPEG or PNG image",
                "data: 'a/90.png': " + cut, "data: 'b/21.png': the file is empty",
                "data: 'b/31.png': " + cut}));
  EXPECT_EQ(d.message(), "data: 'a/10.png': " + cut +
                             " (the first of 5 damaged images); replace or remove them, or leave "
                             "them out with images.damaged: skip");
  const std::string all = message_with_all(d.error());
  for (const char* name : {"a/10", "a/44", "a/90", "b/21", "b/31"}) {
    EXPECT_NE(all.find(name), std::string::npos) << all;
  }
}

TEST(ImageIngestR5, DamagedImagesAreLeftOutAndCounted) {
  ImagesOptions skip;
  skip.damaged = "skip";
  std::vector<ArchiveFile> files = some_damaged();
  const Ingested d = Ingested::of(files, skip);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().train_rows, 95);
  EXPECT_EQ(d->schema().skipped_files, 5);
  ASSERT_EQ(d->schema().warnings.size(), 1u);
  EXPECT_EQ(d->schema().warnings[0].key, "LEFT_OUT_FILES");
  EXPECT_EQ(d->schema().warnings[0].count, 5);
  EXPECT_TRUE(
      d->schema().warnings[0].message.starts_with("5 files are left out (damaged): 'a/10.png' "
                                                  "(the PNG image cannot be read: "))
      << d->schema().warnings[0].message;
  const std::vector<int> firsts = d.firsts(d->train());
  EXPECT_EQ(std::ranges::count(firsts, 11), 1);
  EXPECT_EQ(std::ranges::count(firsts, 10), 0);

  for (size_t i = 50; i < 56; ++i) files[i].content = "x";
  EXPECT_NE(
      Ingested::of(files, skip)
          .message()
          .find("(the first of at least 11 damaged images); of 100 images, images.damaged: skip "
                "leaves out at most one in 10"),
      std::string::npos);
  skip.damaged = "maybe";
  EXPECT_EQ(Ingested::of(files, skip).error().violations[0].field, "images.damaged");
}

TEST(ImageIngestR4, WhatIsNoClassIsReported) {
  const TemporaryFolder folder;
  std::vector<ArchiveFile> files = pets();
  files.push_back({"cats (copy)/1.png", grey_png(1)});
  files.push_back({"notes/readme.txt", "x"});
  files.push_back({"cats/list.txt", "x"});
  write_files(folder / "pets", files);
  fs::create_directories(folder / "pets/birds/@eaDir");
  files.push_back({"birds/", "", FileKind::kFolder});
  files.push_back({"dogs/", "", FileKind::kFolder});
  const Ingested from_folder(folder / "pets");
  const Ingested from_archive = Ingested::of(files);
  for (ArchiveFile& file : files) file.path = "pets/" + file.path;
  const Ingested below_a_folder = Ingested::of(files);
  for (const Ingested* d : {&from_folder, &from_archive, &below_a_folder}) {
    ASSERT_TRUE(d->ok()) << d->message();
    std::map<std::string, std::string> messages;
    for (const DataWarning& w : (**d).schema().warnings) messages[w.key] = w.message;
    EXPECT_EQ(messages["LEFT_OUT_FILES"],
              "2 files are left out (not a JPEG or PNG image): 'cats/list.txt', "
              "'notes/readme.txt'.");
    EXPECT_EQ(messages["FOLDERS_WITHOUT_ROWS"],
              "there is no image in 2 folders: 'birds', 'notes'.");
    EXPECT_EQ(messages["ALIKE_CLASSES"],
              "the classes 'cats' and 'cats (copy)' look like one class and its copy. If they are, "
              "remove the copy or move its files into the class.");
  }
}

TEST(ImageIngestR4, ClassesThatDifferAreNotCalledAlike) {
  const auto keys = [](const std::vector<std::string>& classes) {
    std::vector<ArchiveFile> files;
    for (const std::string& name : classes) files.push_back({name + "/1.png", grey_png(1)});
    const Ingested d = Ingested::of(files);
    std::vector<std::string> found;
    for (const DataWarning& w : d->schema().warnings) found.push_back(w.key);
    return found;
  };
  EXPECT_TRUE(keys({"A", "a", "b"}).empty()) << "letters to recognize";
  EXPECT_TRUE(keys({"model (1)", "model (2)"}).empty()) << "there is no model";
  EXPECT_TRUE(keys({"copy", "original"}).empty());
  for (const char* copy : {"Cats", "cats - Copy", "cats copy", "Copy of cats", "cats (2)",
                           "cats - Kopie", "cats_copy"}) {
    EXPECT_EQ(keys({"cats", copy, "dogs"}), (std::vector<std::string>{"ALIKE_CLASSES"})) << copy;
  }
}

TEST(ImageIngestR2, ClassesThatAreNumbersAreInNumericOrder) {
  std::vector<ArchiveFile> files;
  std::vector<std::string> expected;
  for (int i = 1; i <= 12; ++i) {
    files.push_back({std::to_string(i) + "/x.png", grey_png(static_cast<uint8_t>(i))});
    expected.push_back(std::to_string(i));
  }
  const Ingested d = Ingested::of(files);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().target.classes, expected);
  for (size_t row = 0; row < 12; ++row) {
    EXPECT_EQ(d->train().target_class[row] + 1, d.firsts(d->train())[row]);
  }
  files.push_back({"other/x.png", grey_png(99)});
  EXPECT_EQ(Ingested::of(files)->schema().target.classes[1], "10") << "names are sorted by bytes";
}

TEST(ImageIngestR3, ComposedAndDecomposedNamesAreOneClass) {
  std::vector<ArchiveFile> files = {{"train/caf\u00e9/1.png", grey_png(1)},
                                    {"train/bar/1.png", grey_png(2)},
                                    {"test/cafe\u0301/1.png", grey_png(3)}};
  for (int i = 0; i < 2; ++i) {
    const Ingested d = Ingested::archive(archive_of(files, "pax"));
    ASSERT_TRUE(d.ok()) << d.message();
    EXPECT_EQ(d->schema().target.classes, (std::vector<std::string>{"bar", "caf\u00e9"}));
    EXPECT_EQ(labels(d->test().target_class), (Labels{1}));
    std::swap(files[0].path, files[2].path);
    files[0].path.replace(0, 4, "train");
    files[2].path.replace(0, 5, "test");
  }
  ImagesOptions options;
  options.labels = "labels.csv";
  files = {{"cafe\u0301.png", grey_png(1)},
           {"b.png", grey_png(2)},
           {"labels.csv", "file,class\ncaf\u00e9.png,e\u0301\nb.png,\u00e9\n"}};
  EXPECT_NE(Ingested::archive(archive_of(files, "pax"), options).message().find("of the class"),
            std::string::npos);
}

/// Returns a gray PNG of 16 bits per sample whose pixels rise from `value` by one.
std::string deep_png(uint16_t value, uint32_t side = 2) {
  std::vector<uint16_t> pixels;
  for (uint32_t i = 0; i < side * side; ++i) pixels.push_back(static_cast<uint16_t>(value + i));
  return deep_grey_png(pixels, side);
}

TEST(ImageIngestR1, GrayImagesOf16BitsKeepTheirDepth) {
  std::vector<ArchiveFile> files = {{"low/1.png", deep_png(1000)},
                                    {"low/2.png", deep_png(1001)},
                                    {"high/1.png", deep_png(3000)},
                                    {"high/2.png", grey_png(10)}};
  const Ingested d = Ingested::of(files);
  ASSERT_TRUE(d.ok()) << d.message();
  const DatasetSchema& schema = d->schema();
  EXPECT_EQ(schema.image_dtype, DType::kF32);
  EXPECT_EQ(schema.image_bits, 16);
  const std::vector<float> pixels(d->train().image_f32.begin(), d->train().image_f32.end());
  EXPECT_EQ(pixels, (std::vector<float>{3000, 3001, 3002, 3003, 2570, 2570, 2570, 2570, 1000, 1001,
                                        1002, 1003, 1001, 1002, 1003, 1004}));
  EXPECT_EQ(parse_schema(schema_text(schema))->image_bits, 16);
  EXPECT_TRUE(schema.warnings.empty());
  const std::string file = deep_png(1000);
  const std::vector<RawImage> image = {{"x.png", file}};
  const Result<RawRows> rows = parse_raw_images(schema, image);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->image_f32, (std::vector<float>{1000, 1001, 1002, 1003}));

  const Ingested resized = Ingested::of(files, sized(1, 1));
  EXPECT_EQ(resized->train().image_f32[0], 3002);  // the mean 3001.5, rounded

  files.push_back({"low/3.png", colour_png(1, 2, 3)});
  const Ingested bytes = Ingested::of(files);
  ASSERT_TRUE(bytes.ok()) << bytes.message();
  EXPECT_EQ(bytes->schema().image_dtype, DType::kU8);
  ASSERT_EQ(bytes->schema().warnings.size(), 1u);
  EXPECT_EQ(bytes->schema().warnings[0].key, "DEPTH_REDUCED");
  EXPECT_EQ(bytes->schema().warnings[0].count, 3);
}

TEST(ImageIngest, AFullDiskLeavesNothingBehind) {
  const TemporaryFolder folder;
  write_files(folder / "pets", pets());
  IngestRequest request;
  request.format = "images";
  request.sources.push_back({"data", folder / "pets"});
  FaultyFiles all;
  ASSERT_TRUE(ingest(request, folder / "whole", all).ok());
  ASSERT_GT(all.operations(), 8);
  for (int i = 0; i < all.operations(); ++i) {
    FaultyFiles files(i);
    const fs::path target = folder / ("d" + std::to_string(i));
    const Result<DatasetSchema> result = ingest(request, target, files);
    ASSERT_FALSE(result.ok()) << i;
    EXPECT_EQ(result.error().reason, "STORAGE_FULL");
    EXPECT_FALSE(fs::exists(target));
  }
}

TEST(ImageRowsR9, FilesOfAllSizesBecomeThePixelsOfTheIngest) {
  std::vector<ArchiveFile> files;
  for (const GoldenImage& image : golden_images()) {
    const std::string ending = image.file.starts_with("\x89PNG") ? ".png" : ".jpg";
    for (const char* name : {"a/", "b/"}) files.push_back({name + image.name + ending, image.file});
  }
  std::ranges::sort(files, {}, &ArchiveFile::path);
  for (const char* mode : {"stretch", "crop", "pad"}) {
    const Ingested d = Ingested::of(files, sized(9, 7, mode));
    ASSERT_TRUE(d.ok()) << d.message();
    std::vector<RawImage> images;
    for (const ArchiveFile& file : files) images.push_back({file.path, file.content});
    const Result<RawRows> rows = parse_raw_images(d->schema(), images);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    EXPECT_EQ(rows->image_u8, copy(d->train().image_u8)) << mode;
  }
}

TEST(ImageRows, ArePlacedAsAtIngest) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = Shape{1, 2, 2};
  schema.target.classes = {"a", "b"};
  const std::string same = grey_png(7), larger = grey_png(9, 4, 6), text = "text";
  const std::vector<RawImage> both = {{"a.png", same}, {"b.png", larger}};
  EXPECT_EQ(parse_raw_images(schema, both).error().message,
            "images: 'b.png': an image of 4 x 6 pixels, expected 2 x 2 as the model was trained "
            "on, without resizing");
  schema.resize = ResizeMode::kPad;
  const Result<RawRows> rows = parse_raw_images(schema, both);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(rows->rows, 2);
  EXPECT_EQ(rows->image_u8, (std::vector<uint8_t>{7, 7, 7, 7, 9, 9, 0, 0}));
  const std::vector<RawImage> bad = {{"a.png", same}, {"c.png", text}};
  EXPECT_EQ(parse_raw_images(schema, bad).error().message,
            "images: 'c.png': its content is neither a JPEG nor a PNG image");
  EXPECT_EQ(parse_raw_images(schema, {}).error().message, "images: there are no images");
  schema.image_dtype = DType::kF32;
  EXPECT_EQ(parse_raw_images(schema, both).error().message,
            "images: the model was trained on images of floats, expected IDX or CSV");
  schema.kind = DatasetSchema::Kind::kTabular;
  EXPECT_EQ(parse_raw_images(schema, both).error().message,
            "images: the model was trained on columns, expected CSV");
}

using Several = std::vector<ArchiveFile>;

std::string record(const std::string& label, int value) {
  return label + std::string(1024, static_cast<char>(value)) +
         std::string(1024, static_cast<char>(value + 1)) +
         std::string(1024, static_cast<char>(value + 2));
}

class Cifar {
 public:
  explicit Cifar(const std::vector<ArchiveFile>& files, bool packed = false) {
    IngestRequest request;
    request.format = "cifar";
    if (packed) {
      request.sources.push_back(
          {"data", folder_.write("c.tar.gz", archive_of(files, "ustar", "gzip"))});
    } else {
      write_files(folder_ / "files", files);
      request.sources.push_back({"data", folder_ / "files"});
    }
    UnsyncedFiles local;
    const Result<DatasetSchema> schema = ingest(request, folder_ / "dataset", local);
    if (!schema.ok()) message_ = schema.error().message;
    if (schema.ok()) dataset_ = Dataset::open(folder_ / "dataset", true);
  }
  std::string message() const { return message_; }
  const Dataset* operator->() const { return &dataset_->value(); }

 private:
  TemporaryFolder folder_;
  std::string message_;
  std::optional<Result<Dataset>> dataset_;
};

TEST(CifarIngest, RecordsArriveInOrder) {
  const std::string top = "cifar-10-batches-bin/";
  std::string names;
  for (char c = 'a'; c < 'k'; ++c) names += std::string(1, c) + "\n";
  const std::vector<ArchiveFile> files = {
      {top + "data_batch_2.bin", record("\3", 30)},
      {top + "readme.html", "x"},
      {top + "data_batch_1.bin", record("\7", 10) + record("\1", 20)},
      {top + "test_batch.bin", record("\11", 40)},
      {top + "batches.meta.txt", names + "\n"}};
  for (const bool packed : {false, true}) {
    const Cifar d(files, packed);
    ASSERT_EQ(d.message(), "");
    EXPECT_EQ(d->schema().image, Shape({3, 32, 32}));
    EXPECT_EQ(d->schema().target.classes[9], "j");
    EXPECT_EQ(labels(d->train().target_class), (Labels{7, 1, 3}));
    EXPECT_EQ(labels(d->test().target_class), (Labels{9}));
    EXPECT_EQ(d->train().image_u8[1024], 11);
    EXPECT_EQ(d->train().image_u8[2 * 3072 + 3071], 32);
    EXPECT_EQ(d->train().image_sums[0], 1024 * 10);
  }
  const Cifar hundred(
      Several{{"train.bin", record({"\5\101", 2}, 1)}, {"test.bin", record({"\0\143", 2}, 2)}});
  ASSERT_EQ(hundred.message(), "");
  EXPECT_EQ(labels(hundred->train().target_class), (Labels{65}));  // CIFAR-100's fine label
  EXPECT_EQ(hundred->schema().target.classes.size(), 100u);
  EXPECT_EQ(hundred->schema().target.classes[99], "99");
}

TEST(CifarIngestB39, FilesThatAreNotCifarAreRefused) {
  const std::string good = record("\1", 1);
  EXPECT_EQ(Cifar(Several{{"a.txt", "x"}}).message(),
            "data: there is neither data_batch_*.bin (CIFAR-10) nor train.bin (CIFAR-100); is it "
            "the binary version?");
  EXPECT_EQ(Cifar(Several{{"data_batch_1.bin", good + good.substr(1)}}).message(),
            "data: 'data_batch_1.bin': cut short: its last record has 3072 bytes, expected 3073");
  EXPECT_EQ(Cifar(Several{{"data_batch_1.bin", record("\12", 1)}}).message(),
            "data: 'data_batch_1.bin': record 1 has the label 10, expected 0 to 9");
  EXPECT_EQ(Cifar(Several{{"data_batch_1.bin", good}, {"train.bin", record("ab", 1)}}).message(),
            "data: 'train.bin': files of both CIFAR-10 and CIFAR-100, expected one of them");
  EXPECT_EQ(Cifar(Several{{"a/data_batch_1.bin", good}, {"b/data_batch_1.bin", good}}).message(),
            "data: 'b/data_batch_1.bin': a file of this name appears twice");
  EXPECT_EQ(Cifar(Several{{"data_batch_1.bin", good}, {"batches.meta.txt", "a\nb\n"}}).message(),
            "data: 'batches.meta.txt': 2 names, expected 10 different ones, one per line");
  EXPECT_EQ(Cifar(Several{{"data_batch_1.bin", ""}}).message(),
            "data: there are no training images");
}

TEST(ImageIngest, Cifar10AsJpegs) {
  const auto data = real_data_folder();
  if (!data || !fs::exists(*data / "cifar10")) GTEST_SKIP() << "no real data";
  const Ingested d(*data / "cifar10/cifar10-jpg.tar.xz");
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().train_rows, 50000);
  EXPECT_EQ(d->schema().test_rows, 10000);
  EXPECT_EQ(d->schema().image, Shape({3, 32, 32}));
  EXPECT_EQ(d->schema().target.classes.front(), "airplane");
  EXPECT_EQ(std::count(d->test().target_class.begin(), d->test().target_class.end(), 9), 1000);
}

}  // namespace
}  // namespace trainyard
