// Tests that rows for predict are cut into messages without losing, splitting or reordering a row.
#include "client/lib/predict_rows.h"

#include <gtest/gtest.h>
#include <zlib.h>

namespace trainyard::client {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(compressBound(text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(PredictRows, CsvPiecesRepeatTheHeaderAndKeepQuotedLines) {
  const std::string text = "a,b\n1,\"x\ny\"\n2,z\n3,w\n";
  const auto pieces = split_csv(text, true, 12);
  ASSERT_TRUE(pieces.ok()) << pieces.error().message;
  EXPECT_EQ(*pieces, (std::vector<std::string>{"a,b\n1,\"x\ny\"\n", "a,b\n2,z\n3,w\n"}));
  const auto bare = split_csv("1,2\n3,4\n5,6", false, 8);
  ASSERT_TRUE(bare.ok());
  EXPECT_EQ(*bare, (std::vector<std::string>{"1,2\n3,4\n", "5,6"}));
}

TEST(PredictRows, ARowTooLargeForAMessageIsRefused) {
  const auto pieces = split_csv("a\n" + std::string(50, 'x') + "\n", true, 20);
  ASSERT_FALSE(pieces.ok());
  EXPECT_EQ(pieces.error().reason, "DATASET_INVALID");
}

TEST(PredictRows, IdxPiecesAreIdxFiles) {
  std::string idx("\0\0\x08\x03\0\0\0\x05\0\0\0\x02\0\0\0\x02", 16);
  for (char c = 0; c < 20; ++c) idx += c;
  EXPECT_EQ(idx_shape(idx), (std::vector<int64_t>{5, 2, 2}));
  const auto pieces = split_idx(idx, 16 + 8);
  ASSERT_TRUE(pieces.ok()) << pieces.error().message;
  ASSERT_EQ(pieces->size(), 3u);
  std::string body;
  for (const std::string& piece : *pieces) body += piece.substr(16);
  EXPECT_EQ(body, idx.substr(16));
  EXPECT_EQ(idx_shape(pieces->back()), (std::vector<int64_t>{1, 2, 2}));
  EXPECT_FALSE(split_idx(idx.substr(0, 30), 20).ok()) << "a header that lies";
  EXPECT_FALSE(split_idx("no idx at all, but long", 10).ok());
}

TEST(PredictRows, GzipIsUnpackedAndDamageRefused) {
  const std::string text(100'000, 'q');
  const auto back = gunzip_if_compressed(gzip(text));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, text);
  EXPECT_FALSE(gunzip_if_compressed(gzip(text).substr(0, 40)).ok());
  EXPECT_EQ(*gunzip_if_compressed("plain"), "plain");
}

TEST(PredictRows, LinesAreCutBetweenThem) {
  const std::string text = "one\ntwo \"three\n\nfour";
  EXPECT_EQ(*split_lines(text, 100), (std::vector<std::string>{text}));
  EXPECT_EQ(*split_lines(text, 12), (std::vector<std::string>{"one\n", "two \"three\n\n", "four"}));
  EXPECT_EQ(*split_lines("a\n", 2), (std::vector<std::string>{"a\n"}));
  const auto refused = split_lines(text, 6);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("the line at byte 4"), std::string::npos);
}

TEST(PredictRows, FieldsResolveQuotes) {
  const auto rows = csv_fields(
      "\xef\xbb\xbf"
      "a,\"b,\"\"c\"\r\n\n1,2\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"a", "b,\"c"}));
  EXPECT_EQ(rows[1][1], "2");
}

}  // namespace
}  // namespace trainyard::client
