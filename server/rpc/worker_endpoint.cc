#include "server/rpc/worker_endpoint.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "server/config/config.h"
#include "server/protocol/enrolment.h"
#include "src/base/files.h"
#include "src/base/handle.h"

namespace trainyard::server {
namespace {

constexpr int64_t kIdentityBytesMax = 64 << 10;
constexpr size_t kEnrolmentKeyBytes = 32;
constexpr long kValidSeconds = 20L * 365 * 24 * 3600;
constexpr long kBackdatedSeconds = 24L * 3600;  // the clocks of other hosts may be behind

using PrivateKey = Handle<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Handle<X509, X509_free>;
using Memory = Handle<BIO, BIO_free>;

/// Writes a file that no other user can read at any time, except for the members of a group.
Status write_private(const std::filesystem::path& path, std::string_view bytes,
                     std::optional<gid_t> group = std::nullopt) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  std::error_code ec;
  std::filesystem::remove(temporary, ec);
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return file_error("cannot create", temporary, errno);
  if (group &&
      (::fchown(fd.get(), static_cast<uid_t>(-1), *group) != 0 || ::fchmod(fd.get(), 0640) != 0)) {
    return file_error("cannot give to front_group", temporary, errno);
  }
  if (::write(fd.get(), bytes.data(), bytes.size()) != std::ssize(bytes) ||
      ::fsync(fd.get()) != 0) {
    return file_error("cannot write", temporary, errno == 0 ? ENOSPC : errno);
  }
  return local_files().rename_durable(temporary, path);
}

Error invalid_identity(const std::filesystem::path& path, const std::string& what) {
  return make_error(ErrorCode::kFailedPrecondition, "WORKER_IDENTITY_INVALID",
                    path.string() + " " + what +
                        "; delete it and the daemon creates a new one, which running remote "
                        "workers will not accept");
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return {data, static_cast<size_t>(size)};
}

bool add_extension(X509* certificate, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const Handle<X509_EXTENSION, X509_EXTENSION_free> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

/// Creates a key and its certificate, both in PEM, one after the other.
std::string make_identity() {
  const PrivateKey key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  std::array<unsigned char, 16> serial{};
  bool ok = key && certificate && RAND_bytes(serial.data(), serial.size()) == 1;
  serial[0] &= 0x7f;  // makes the number positive
  const Handle<BIGNUM, BN_free> number(
      BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr));
  ok = ok && number && X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
       BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())) != nullptr &&
       X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kBackdatedSeconds) != nullptr &&
       X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kValidSeconds) != nullptr &&
       X509_set_pubkey(certificate.get(), key.get()) == 1;
  if (ok) {
    X509_NAME* const name = X509_get_subject_name(certificate.get());
    ok = X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(kWorkersName), -1, -1,
                                    0) == 1 &&
         X509_set_issuer_name(certificate.get(), name) == 1 &&
         add_extension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE") &&
         add_extension(certificate.get(), NID_key_usage, "critical,digitalSignature") &&
         add_extension(certificate.get(), NID_ext_key_usage, "serverAuth") &&
         add_extension(certificate.get(), NID_subject_alt_name,
                       "DNS:" + std::string(kWorkersName)) &&
         X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0;
  }
  const Memory out(BIO_new(BIO_s_mem()));
  ok = ok && out &&
       PEM_write_bio_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1 &&
       PEM_write_bio_X509(out.get(), certificate.get()) == 1;
  TRAINYARD_CHECK(ok, "OpenSSL cannot create a certificate");
  return text_of(out.get());
}

/// Returns the key and the certificate, each in PEM, after checking that they belong together.
Result<std::pair<std::string, std::string>> read_identity(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kIdentityBytesMax));
  const auto reader = [&text] {
    return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  };
  const PrivateKey key(PEM_read_bio_PrivateKey(reader().get(), nullptr, nullptr, nullptr));
  const Certificate certificate(PEM_read_bio_X509(reader().get(), nullptr, nullptr, nullptr));
  if (!key || !certificate) {
    return invalid_identity(path, "does not contain a private key and a certificate in PEM");
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return invalid_identity(path, "contains a certificate for another key");
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return invalid_identity(path, "contains an expired certificate");
  }
  const Memory key_out(BIO_new(BIO_s_mem()));
  const Memory certificate_out(BIO_new(BIO_s_mem()));
  TRAINYARD_CHECK(PEM_write_bio_PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                           nullptr) == 1 &&
                      PEM_write_bio_X509(certificate_out.get(), certificate.get()) == 1,
                  "OpenSSL cannot write PEM");
  return std::pair(text_of(key_out.get()), text_of(certificate_out.get()));
}

Result<std::string> read_enrolment_key(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(std::string key, read_file(path, kIdentityBytesMax));
  if (key.size() == kEnrolmentKeyBytes) return key;
  return invalid_identity(path, "has " + std::to_string(key.size()) + " bytes, expected 32");
}

bool is_missing(const Error& error) { return error.reason == "FILE_NOT_FOUND"; }

}  // namespace

Result<std::unique_ptr<WorkerEndpoint>> WorkerEndpoint::open(const std::filesystem::path& state_dir,
                                                             std::string listen,
                                                             std::string advertise) {
  const std::filesystem::path folder = state_dir / "workers";
  if (Status s = local_files().create_directories(folder); !s.ok()) return std::move(s).error();
  const std::filesystem::path identity = folder / "identity.pem";
  auto pems = read_identity(identity);
  if (!pems.ok() && is_missing(pems.error())) {
    if (Status s = write_private(identity, make_identity()); !s.ok()) return std::move(s).error();
    pems = read_identity(identity);
  }
  if (!pems.ok()) return std::move(pems).error();
  const std::filesystem::path key_path = folder / "enrolment.key";
  Result<std::string> key = read_enrolment_key(key_path);
  if (!key.ok() && is_missing(key.error())) {
    std::string random(kEnrolmentKeyBytes, '\0');
    TRAINYARD_CHECK(
        ::getrandom(random.data(), random.size(), 0) == static_cast<ssize_t>(random.size()),
        "getrandom failed");
    if (Status s = write_private(key_path, random); !s.ok()) return std::move(s).error();
    key = std::move(random);
  }
  if (!key.ok()) return std::move(key).error();
  std::unique_ptr<WorkerEndpoint> endpoint(new WorkerEndpoint());
  endpoint->listen_ = std::move(listen);
  endpoint->advertise_ = std::move(advertise);
  std::tie(endpoint->key_, endpoint->certificate_) = std::move(pems).value();
  endpoint->enrolment_key_ = std::move(key).value();
  return endpoint;
}

Status WorkerEndpoint::write_identity(const std::filesystem::path& path,
                                      std::optional<gid_t> group) const {
  return write_private(path, key_ + certificate_, group);
}

Status WorkerEndpoint::check(const std::filesystem::path& state_dir) {
  const std::filesystem::path folder = state_dir / "workers";
  const auto pems = read_identity(folder / "identity.pem");
  if (!pems.ok() && !is_missing(pems.error())) return pems.error();
  const Result<std::string> key = read_enrolment_key(folder / "enrolment.key");
  if (!key.ok() && !is_missing(key.error())) return key.error();
  return {};
}

std::string WorkerEndpoint::attach_address() const {
  if (!advertise_.empty()) return advertise_;
  const Result<HostPort> parsed = parse_host_port(listen_);
  if (!parsed.ok() || parsed->port != 0) return listen_;
  return listen_.substr(0, listen_.rfind(':') + 1) + std::to_string(port_);
}

std::string WorkerEndpoint::enrolment_secret(const std::string& task) const {
  return hmac_sha256_hex(enrolment_key_, task);
}

}  // namespace trainyard::server
