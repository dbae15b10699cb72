//! Messages written from the end, when the length of what a message holds is known: counted ahead, it is counted again for each message
//! around it.

use bytes::Bytes;

const DELIMITED: u8 = 2;

pub(super) struct Back {
    /// What is written stands at its end.
    room: Vec<u8>,
    at: usize,
}

impl Back {
    pub(super) fn with_room(room: usize) -> Self {
        Back { room: vec![0; room], at: room }
    }

    pub(super) fn len(&self) -> usize {
        self.room.len() - self.at
    }

    /// Before what was written.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.at < bytes.len() {
            self.grow(bytes.len());
        }
        let end = self.at;
        self.at -= bytes.len();
        self.room[self.at..end].copy_from_slice(bytes);
    }

    /// What was written since is a field.
    pub(super) fn close(&mut self, field: u8, end: usize) {
        self.varint((self.len() - end) as u64);
        self.put(&[field << 3 | DELIMITED]);
    }

    pub(super) fn varint(&mut self, mut number: u64) {
        let (mut bytes, mut len) = ([0; 10], 1);
        while number >= 0x80 {
            bytes[len - 1] = number as u8 | 0x80;
            number >>= 7;
            len += 1;
        }
        bytes[len - 1] = number as u8;
        self.put(&bytes[..len]);
    }

    pub(super) fn written(self) -> Bytes {
        Bytes::from(self.room).slice(self.at..)
    }

    fn grow(&mut self, wanted: usize) {
        let more = self.room.len() + wanted;
        let mut room = vec![0; self.room.len() + more];
        room[self.at + more..].copy_from_slice(&self.room[self.at..]);
        (self.room, self.at) = (room, self.at + more);
    }
}
