//! The bytes of a log: out of a file or the standard input, without their compression.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read, stdin},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

/// The size of a read of a compressed file.
const READ_BYTES: usize = 128 * 1024;

/// The first bytes of compressed files that are not read, with the program that reads them.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"BZh", "bzip2 -dc"),
    (b"\xfd7zX", "xz -dc"),
    (b"PK\x03\x04", "unzip -p"),
    (b"\x04\x22\x4d\x18", "lz4 -dc"),
];

/// Opens a log and counts the bytes that are read of it. `-` is the standard input. The first bytes say whether it is
/// compressed.
pub(super) fn open(path: &Path, count: Arc<AtomicU64>) -> io::Result<Box<dyn Read + Send>> {
    if path == Path::new("-") {
        return decompress(Counted { stream: stdin(), count });
    }
    decompress(Counted { stream: File::open(path)?, count })
}

fn decompress(mut stream: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::with_capacity(4);
    stream.by_ref().take(4).read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(b"\x1f\x8b");
    // A zstd file may begin with a frame to skip.
    let is_zstd = magic == b"\x28\xb5\x2f\xfd"
        || (magic.len() == 4 && magic.ends_with(b"\x2a\x4d\x18") && magic[0] & 0xf0 == 0x50);
    if let Some((_, program)) = FOREIGN.iter().find(|(begin, _)| magic.starts_with(begin)) {
        let hint =
            format!("its compression is not known; use `{program} FILE | plimsoll replay -`");
        return Err(io::Error::new(io::ErrorKind::Unsupported, hint));
    }
    let stream = Cursor::new(magic).chain(stream);
    if is_gzip {
        return Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, stream))));
    }
    if is_zstd {
        return Ok(Box::new(Zstd::new(BufReader::with_capacity(READ_BYTES, stream))));
    }
    Ok(Box::new(stream))
}

/// A stream whose bytes are counted.
struct Counted<R> {
    stream: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.count.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

/// The content of the frames of a zstd file, one after the other. The decoder knows only single frames.
struct Zstd<R> {
    stream: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(stream: R) -> Self {
        Self { stream, decoder: FrameDecoder::new(), is_in_frame: false }
    }

    /// Begins the next frame. Returns false at the end of the file.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.stream.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.stream) {
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.stream.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Ends a frame, whose checksum must be right if it has one.
    fn end_frame(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let written = self.decoder.get_checksum_from_data();
        if written.is_some() && written != self.decoder.get_calculated_checksum() {
            return Err(io::Error::other("the checksum of a zstd frame is wrong"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.is_in_frame || self.begin_frame()? {
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.stream, one).map_err(io::Error::other)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.end_frame()?;
        }
        Ok(0)
    }
}
