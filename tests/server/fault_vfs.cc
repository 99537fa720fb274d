#include "tests/server/fault_vfs.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <utility>

namespace trainyard::server {
namespace {

// The state of an open file; the default layer's file follows in the same allocation.
struct FaultFile {
  sqlite3_file base;
  FaultVfs* vfs;
  std::string* file_name;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
FaultFile& self(sqlite3_file* file) { return *reinterpret_cast<FaultFile*>(file); }
sqlite3_file* real(sqlite3_file* file) { return self(file).real(); }

int ask(sqlite3_file* file, FileOperation::Kind kind, int64_t offset, std::string data) {
  FaultFile& f = self(file);
  return f.vfs->before({kind, *f.file_name, offset, std::move(data)});
}

int close_file(sqlite3_file* file) {
  const int code =
      real(file)->pMethods == nullptr ? SQLITE_OK : real(file)->pMethods->xClose(real(file));
  delete self(file).file_name;
  return code;
}
int read_at(sqlite3_file* f, void* to, int n, sqlite3_int64 at) {
  return real(f)->pMethods->xRead(real(f), to, n, at);
}
int write_at(sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
  const std::string data(static_cast<const char*>(from), static_cast<size_t>(n));
  if (const int code = ask(f, FileOperation::Kind::kWrite, at, data); code != SQLITE_OK)
    return code;
  return real(f)->pMethods->xWrite(real(f), from, n, at);
}
int truncate_file(sqlite3_file* f, sqlite3_int64 size) {
  if (const int code = ask(f, FileOperation::Kind::kTruncate, size, ""); code != SQLITE_OK)
    return code;
  return real(f)->pMethods->xTruncate(real(f), size);
}
int sync_file(sqlite3_file* f, int flags) {
  if (const int code = ask(f, FileOperation::Kind::kSync, 0, ""); code != SQLITE_OK) return code;
  return real(f)->pMethods->xSync(real(f), flags);
}
int file_size(sqlite3_file* f, sqlite3_int64* size) {
  return real(f)->pMethods->xFileSize(real(f), size);
}
int lock_file(sqlite3_file* f, int level) { return real(f)->pMethods->xLock(real(f), level); }
int unlock_file(sqlite3_file* f, int level) { return real(f)->pMethods->xUnlock(real(f), level); }
int check_lock(sqlite3_file* f, int* out) {
  return real(f)->pMethods->xCheckReservedLock(real(f), out);
}
int control_file(sqlite3_file* f, int op, void* arg) {
  return real(f)->pMethods->xFileControl(real(f), op, arg);
}
int sector_size(sqlite3_file* f) { return real(f)->pMethods->xSectorSize(real(f)); }
// Tells SQLite that the device guarantees nothing. With guarantees SQLite would take
// shortcuts that after_power_cut() does not model.
int characteristics(sqlite3_file*) { return 0; }
int shm_map(sqlite3_file* f, int page, int size, int extend, void volatile** out) {
  return real(f)->pMethods->xShmMap(real(f), page, size, extend, out);
}
int shm_lock(sqlite3_file* f, int offset, int n, int flags) {
  return real(f)->pMethods->xShmLock(real(f), offset, n, flags);
}
void shm_barrier(sqlite3_file* f) { real(f)->pMethods->xShmBarrier(real(f)); }
int shm_unmap(sqlite3_file* f, int remove) { return real(f)->pMethods->xShmUnmap(real(f), remove); }

const sqlite3_io_methods kMethods = {
    2,         close_file,  read_at,    write_at,     truncate_file, sync_file,       file_size,
    lock_file, unlock_file, check_lock, control_file, sector_size,   characteristics, shm_map,
    shm_lock,  shm_barrier, shm_unmap,  nullptr,      nullptr};

/// Returns the default layer. The static keeps it even after a test has made the fault layer the
/// default.
sqlite3_vfs* base_vfs() {
  static sqlite3_vfs* const base = sqlite3_vfs_find(nullptr);
  return base;
}

int open_file(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  sqlite3_vfs* base = base_vfs();
  FaultFile& f = self(file);
  f.vfs = static_cast<FaultVfs*>(vfs->pAppData);
  f.file_name = new std::string(path == nullptr ? "" : std::filesystem::path(path).filename());
  f.base.pMethods = nullptr;
  const int code = base->xOpen(base, path, f.real(), flags, out_flags);
  if (code == SQLITE_OK) {
    f.base.pMethods = &kMethods;
  } else {
    delete f.file_name;
  }
  return code;
}

constexpr size_t kSectorBytes = 512;

void apply(FileImages& images, const FileOperation& op, size_t bytes) {
  std::string& image = images[op.file];
  if (op.kind == FileOperation::Kind::kTruncate) {
    image.resize(static_cast<size_t>(op.offset));
  } else if (op.kind == FileOperation::Kind::kWrite) {
    const auto at = static_cast<size_t>(op.offset);
    if (image.size() < at + bytes) image.resize(at + bytes);
    image.replace(at, bytes, op.data, 0, bytes);
  }
}

}  // namespace

FaultVfs::FaultVfs(std::string name) : name_(std::move(name)) {
  vfs_ = *base_vfs();
  vfs_.szOsFile += static_cast<int>(sizeof(FaultFile));
  vfs_.zName = name_.c_str();
  vfs_.pAppData = this;
  vfs_.pNext = nullptr;
  // The default layer's other functions use their layer argument only to read pAppData, which finds
  // the locking style. Hence the wrappers pass the default layer itself.
  vfs_.xOpen = open_file;
  vfs_.xDelete = [](sqlite3_vfs*, const char* path, int sync) {
    sqlite3_vfs* base = base_vfs();
    return base->xDelete(base, path, sync);
  };
  vfs_.xAccess = [](sqlite3_vfs*, const char* path, int flags, int* out) {
    sqlite3_vfs* base = base_vfs();
    return base->xAccess(base, path, flags, out);
  };
  vfs_.xFullPathname = [](sqlite3_vfs*, const char* path, int n, char* out) {
    sqlite3_vfs* base = base_vfs();
    return base->xFullPathname(base, path, n, out);
  };
  sqlite3_vfs_register(&vfs_, /*makeDflt=*/0);
}

FaultVfs::~FaultVfs() { sqlite3_vfs_unregister(&vfs_); }

void FaultVfs::set_hook(std::function<int(const FileOperation&)> hook) {
  const MutexLock lock(mu_);
  hook_ = std::move(hook);
}

int FaultVfs::before(FileOperation operation) {
  const MutexLock lock(mu_);
  return hook_ ? hook_(operation) : SQLITE_OK;
}

FileImages after_power_cut(FileImages images, const std::vector<FileOperation>& operations,
                           size_t count, const std::function<uint32_t()>& random) {
  std::map<std::string, size_t> synced;  // operations on a file before this index are on the disk
  for (size_t i = 0; i < count; ++i)
    if (operations[i].kind == FileOperation::Kind::kSync) synced[operations[i].file] = i;
  for (size_t i = 0; i < count; ++i) {
    const FileOperation& op = operations[i];
    const auto sync = synced.find(op.file);
    if (sync != synced.end() && i < sync->second) {
      apply(images, op, op.data.size());
      continue;
    }
    switch (random() % 3) {  // an unsynced operation is lost, complete or cut off
      case 0:
        break;
      case 1:
        apply(images, op, op.data.size());
        break;
      default:
        if (op.kind == FileOperation::Kind::kWrite)
          apply(images, op,
                std::min(op.data.size(),
                         kSectorBytes * (random() % (op.data.size() / kSectorBytes + 1))));
    }
  }
  return images;
}

}  // namespace trainyard::server
